"""The MQTT source."""
