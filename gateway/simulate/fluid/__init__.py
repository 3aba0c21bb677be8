"""Many gateways at once, in slots: events as a fluid in arrays, decisions by each gateway's production Scheduler."""
