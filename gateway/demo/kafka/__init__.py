"""The demo from Kafka to Kafka: Spark at home carries the benchmark, and the gateway takes over when it is late."""
