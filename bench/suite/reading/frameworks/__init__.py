"""Peers that cannot be installed beside Spillway: programs for an environment of their own (``make frameworks``)."""
