"""The streams of a query with several sources."""
