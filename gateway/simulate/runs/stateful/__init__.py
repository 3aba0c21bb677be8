"""Queries with state of a simulated world: their engines, checkpoints and moves."""
