"""One lane of an exchange: its queue, credit, measured rate, and how long to wait for its answers."""
