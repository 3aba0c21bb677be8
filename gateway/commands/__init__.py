"""Commands that speak with a running gateway."""
