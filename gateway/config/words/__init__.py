"""The smallest parts of the config: quantities with units, types of field, and DDL schemas."""
