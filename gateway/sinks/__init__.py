"""The destinations of results."""
