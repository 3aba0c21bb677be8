"""The path of events through one query: ingress, lanes, reordering, delivery."""
