"""The decisions of each slot: events in, commands out."""
