"""The quota that several gateways share, in their object store."""
