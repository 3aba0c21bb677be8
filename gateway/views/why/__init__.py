"""Why it was decided so: what was written down of decisions, and how it is told."""
