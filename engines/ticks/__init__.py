"""Rises of a stock after a large trade: a reader of real trades, a generator, and the pattern."""
