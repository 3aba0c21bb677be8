"""Queries whose events are put together into selections: each selection is processed by itself."""
