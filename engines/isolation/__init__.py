"""Isolation of bad rows: finds the rows at fault in a run that failed, and answers the others."""
