"""One lane of an exchange: its queue, credit, measured rate, and how long its answers are waited for."""
