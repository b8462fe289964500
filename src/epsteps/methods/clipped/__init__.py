"""Clipped descent: gradient steps with momentum under Gaussian noise, whose clip follows the gradients that are met.

A record's gradient is clipped to a norm C (Abadi et al. 2016), and noise pays for C alone. How large gradients are,
nobody knows beforehand, and they become smaller as the model gets better. So now and then a little of the budget buys
a histogram of their sizes, with noise, and the clip is what loses least by it: too small a clip turns the gradient, too
large a one lets in noise. Every release has its rho from the beginning, whatever clip is chosen, so that the choice is
free: noise is scaled to the clip.

Where the noise is large, few steps of gradient descent are a better filter than the minimum of a tilted objective,
which a ridge has to keep near 0: with many columns or several classes, that is. All points are published.

For squared loss a gradient at 0 tells more of the targets than of the records, and the loss bends everywhere. So a
histogram of the records' lengths says how long steps may be, and the clip follows residuals as they shrink.

How far the model should go, no public number says: where classes are nearly separable, much farther than elsewhere.
With many directions for noise to go, a few of the published points span a space in which there is hardly any. So a
little of the budget *blends* them at last: the model is where the loss is least in that space, by descent on the few
pulls that records have there.
"""

from epsteps.methods.clipped.plan import ClippedPlan, is_clippable, plan_clipped

__all__ = ["ClippedPlan", "is_clippable", "plan_clipped"]
