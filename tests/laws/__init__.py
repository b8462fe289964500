"""Laws that several tests check, each written once: of plans, of what they ask for, and of their runs."""
