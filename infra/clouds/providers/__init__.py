"""Providers that rent machines, each asked through libcloud: orders, prices, errors and retries."""
