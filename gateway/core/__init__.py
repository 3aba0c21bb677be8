"""What decides without the world: no clock, no await, no thread, no I/O.

It imports the standard library, numpy and `policies`, and nothing else of ours.
"""
