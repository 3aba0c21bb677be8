"""What the live page shows: one moment for each slot, and the moments of the last 24 hours."""
