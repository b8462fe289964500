"""The plan: everything that is decided before the data is opened."""
