"""The sections of a query that stand alone: payload, and how its events, failures and results are handled."""
