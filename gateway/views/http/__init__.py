"""The HTTP API and the live page of a running gateway."""
