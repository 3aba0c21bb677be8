"""Runs by reference: executors read their events from Kafka by themselves."""
