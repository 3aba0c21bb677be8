"""The HTTP API of a running gateway."""
