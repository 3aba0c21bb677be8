"""A source of several sources: the events of each stream as rows of one table."""
