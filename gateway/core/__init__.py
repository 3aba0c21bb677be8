"""The pure core: it decides, and does no I/O. It has no clock, thread, await or randomness of its own."""
