"""Connections to MQTT brokers."""
