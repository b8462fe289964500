"""Experiments: seeded, and therefore not private; they use the library through its public names."""
