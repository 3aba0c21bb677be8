"""Providers that rent VMs, each called through libcloud: orders, prices, errors and retries."""
