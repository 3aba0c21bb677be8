"""Launching VMs for the backlog that will be there when they can serve, without a history of the load."""
