"""The e-mail benchmark (EmailProcessor, ESM section 3.2): mail to read or make, the queries, and their answers."""
