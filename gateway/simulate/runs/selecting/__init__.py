"""Queries of a simulated world whose events become selections."""
