"""Static tables that are read from databases."""
