"""The path of rows into Spark's streams, and of answers out of them."""
