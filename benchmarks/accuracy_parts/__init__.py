"""The accuracy benchmark, one file per job; `benchmarks/accuracy.py` is the command."""
