"""Pure decisions: no I/O, no await, no clock, no global state."""
