"""Decisions, and nothing else: no I/O, no await, no clock, no global."""
