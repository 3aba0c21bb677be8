"""How a Kafka client of the gateway reaches its brokers."""

from __future__ import annotations

import ssl
from typing import Any

from gateway.config.kafka import KafkaSink, KafkaSource


def client_settings(config: KafkaSource | KafkaSink) -> dict[str, Any]:
    """Return the arguments that every client of aiokafka takes: brokers, TLS and login.

    Raises:
        OSError: a file of ``tls`` cannot be read.
    """
    settings: dict[str, Any] = {"bootstrap_servers": config.brokers.split(","), "client_id": "spillway"}
    tls, sasl = config.tls, config.sasl
    if tls is not None:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
        settings["ssl_context"] = context
    if sasl is not None:
        settings["sasl_mechanism"] = sasl.mechanism
        settings["sasl_plain_username"] = sasl.user
        settings["sasl_plain_password"] = sasl.password.get_secret_value()
    transport = "SSL" if tls is not None else "PLAINTEXT"
    settings["security_protocol"] = f"SASL_{transport}" if sasl is not None else transport
    return settings


def same_brokers(one: str, other: str) -> bool:
    """Return whether two lists of brokers name the same, in whatever order."""
    return _addresses(one) == _addresses(other)


def _addresses(brokers: str) -> set[str]:
    return {address.strip() for address in brokers.split(",")}
