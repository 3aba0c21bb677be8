"""The HTTP source."""
