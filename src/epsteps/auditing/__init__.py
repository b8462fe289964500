"""Empirical lower bounds on what a plan spends when it is executed, to be held against its certificate."""

from epsteps.auditing.bounding import audit
from epsteps.auditing.measuring import Design
from epsteps.auditing.report import Audit, StepBound

__all__ = ["Audit", "Design", "StepBound", "audit"]
