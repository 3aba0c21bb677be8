"""Everything that runs queries: the engine host, Spark, plan analysis and the benchmark queries."""
