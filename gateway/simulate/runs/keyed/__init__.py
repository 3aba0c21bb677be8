"""Queries of a simulated world that are divided by their keys into parts."""
