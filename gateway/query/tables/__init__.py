"""The static tables of a query while it runs."""
