"""The runs and the results of a keyed query that is divided into parts."""
