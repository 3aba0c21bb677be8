"""Runs whose micro-batch failed: the rows at fault are found, the others are answered."""
