"""Each query of a corpus, once in one place and once in two, with the same input."""
