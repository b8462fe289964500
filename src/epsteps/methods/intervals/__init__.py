"""Intervals for the coefficients of a tilted minimum: what is bought for them, and what follows from it.

Everything here sees public numbers and published ones, never a record.
"""
