"""One reader for each file format, and code that the readers share."""
