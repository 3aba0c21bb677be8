"""SNB2016 (ESM section 3.3; DEBS 2016 Grand Challenge, query 1): a reader, a generator, and the query with state."""
