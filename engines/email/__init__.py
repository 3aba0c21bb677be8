"""The e-mail benchmark (EmailProcessor, ESM section 3.2): readers and a generator of mail, queries, and answers."""
