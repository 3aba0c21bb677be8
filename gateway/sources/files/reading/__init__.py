"""Files one after the other, read here or by others."""
