"""Objects by name, in S3 or in a folder, with conditional writes."""
