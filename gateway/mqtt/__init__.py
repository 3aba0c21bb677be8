"""MQTT on the wire: connections whose acknowledgements wait until the gateway says so."""
