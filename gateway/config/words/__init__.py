"""The smallest parts of the config: quantities with units, kinds of field, and DDL schemas."""
