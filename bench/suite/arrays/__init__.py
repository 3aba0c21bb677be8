"""Putting in order and splitting, as work on arrays."""
