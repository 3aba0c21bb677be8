"""Keeps the queries open, and the private engine hosts on which they run."""
