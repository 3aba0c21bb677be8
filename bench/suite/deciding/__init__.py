"""Deciding: how soon, and at what cost."""
