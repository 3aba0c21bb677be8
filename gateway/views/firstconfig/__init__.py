"""A first config: the columns of its events, found from some of them, and its text, for ``spillway init``."""
