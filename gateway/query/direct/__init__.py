"""Queries that Spark at home carries from Kafka to Kafka by itself, while that keeps their targets."""
