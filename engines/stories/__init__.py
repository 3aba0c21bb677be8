"""First stories in short texts (Dynamic Load Balancing, section 4): a reader of tweets, a generator, and the query."""
