"""Pure decisions: no clock, no await, no thread, no I/O.

The package imports only the standard library, numpy and `policies`.
"""
