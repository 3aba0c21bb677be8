"""How rows get into Spark's streams and answers out of them."""
