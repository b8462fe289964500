"""Privacy budgets: what a run may spend, how it is split over the steps, and what steps cost together."""

from epsteps.budgets.pure import Pure, base_epsilon, epsilon_of, required_scale

__all__ = ["Pure", "base_epsilon", "epsilon_of", "required_scale"]
