"""The loop that executes a plan on private records."""
