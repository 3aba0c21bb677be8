"""Load that operators know of in advance: campaigns, matches, batch jobs."""
