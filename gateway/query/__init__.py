"""The life of one query: opened, running, changed, closed."""
