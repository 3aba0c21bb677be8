"""Rented VMs as the policies see them: the life of each one, and the fleet."""
