"""Runs by reference: executors read their events by themselves."""
