"""The problem as public facts: losses, domains, the shapes of gradients, and the integers that they are summed in."""
