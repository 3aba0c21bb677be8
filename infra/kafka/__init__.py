"""Reading of Kafka records: ranges of offsets, and what their records mean."""
