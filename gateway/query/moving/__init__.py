"""Moves a stateful query with its state to a VM and back."""
