"""What runs a query: the engine host, Spark, plan analysis and the benchmark queries."""
