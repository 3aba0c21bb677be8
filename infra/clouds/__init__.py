"""Clouds that rent VMs: one protocol, one module for each provider, one contract suite for all of them."""
