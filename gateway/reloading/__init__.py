"""Takes in a changed config while the gateway runs: all of it, or nothing."""
