"""What the gateway costs: one query on one core from Kafka to Kafka, beside plain Spark."""
