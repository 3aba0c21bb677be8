"""What a trace of a run contains. Pure."""
