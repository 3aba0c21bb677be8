"""A whole gateway without Spark: what it carries, how fast, and what it uses when idle."""
