"""Limits of VMs and money that several gateways share."""
