"""When failed work is suspected, repeated, retried later, or abandoned."""
