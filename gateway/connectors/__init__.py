"""Code that sources and sinks share: positions, TLS files, object stores, and clients of Kafka and MQTT."""
