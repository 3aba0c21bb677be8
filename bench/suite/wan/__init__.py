"""What crosses the WAN."""
