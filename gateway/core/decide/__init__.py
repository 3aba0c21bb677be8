"""What the gateway decides each slot: events in, commands out."""
