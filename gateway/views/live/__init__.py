"""What is shown of a running gateway: one moment for each slot, and the moments of the last 24 hours."""
