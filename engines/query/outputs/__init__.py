"""Which results a query emits: what its output mode asks of its plan."""
