"""The benchmark of whole fits, one file per table; `benchmarks/fits.py` is the command."""
