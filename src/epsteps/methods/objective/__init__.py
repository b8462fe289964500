"""Objective perturbation: the minimum of a tilted objective is published."""
