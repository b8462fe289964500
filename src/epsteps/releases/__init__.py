"""Releases: private numbers and models that are not the path of a plan, one file each."""
