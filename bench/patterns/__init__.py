"""The sections of bench/reproduce_patterns.py."""
