"""Parts of a keyed query: which queries can be divided, and the heartbeats that keep the watermarks of parts equal."""
