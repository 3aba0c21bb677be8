"""One reader for each file format, and what the readers share."""
