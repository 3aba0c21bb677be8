"""Runs by reference."""
