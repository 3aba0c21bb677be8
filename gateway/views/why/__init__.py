"""The reasons for decisions: the logs of decisions and events, and their presentation."""
