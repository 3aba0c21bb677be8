"""The cost of VMs, and the limits of spending."""
