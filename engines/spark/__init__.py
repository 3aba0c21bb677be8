"""Spark on an engine host: its session, settings, Python workers, and scratch folders."""
