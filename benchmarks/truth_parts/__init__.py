"""The parts of truth.py: tables, cells of predicted and measured error, targets that are reached, and coverage."""
