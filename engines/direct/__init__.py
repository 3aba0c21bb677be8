"""Queries that Spark carries from Kafka to Kafka by itself, without the gateway."""
