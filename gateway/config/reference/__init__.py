"""What the config can contain, in the words of its users: as a JSON Schema, and as a page of the documentation."""
