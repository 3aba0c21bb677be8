"""A query on one host."""
