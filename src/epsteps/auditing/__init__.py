"""Empirical lower bounds on what a plan spends when it is executed, to be held against its certificate."""

from epsteps.auditing.audit import audit, work
from epsteps.auditing.report import Audit, StepBound, draw

__all__ = ["Audit", "StepBound", "audit", "draw", "work"]
