"""How Kafka's clients connect to their brokers."""

from __future__ import annotations

from typing import Any

from infra.clienttls import client_context
from infra.messages import BrokerAccess


def client_settings(access: BrokerAccess) -> dict[str, Any]:
    """Return the arguments for every aiokafka client: brokers, TLS and login.

    Raises:
        BadTlsFilesError: a file of the TLS settings cannot be used.
    """
    settings: dict[str, Any] = {"bootstrap_servers": access.brokers.split(","), "client_id": "spillway"}
    if access.tls:
        settings["ssl_context"] = client_context(access.ca, access.certificate, access.key)
    if access.mechanism:
        settings["sasl_mechanism"] = access.mechanism
        settings["sasl_plain_username"] = access.user
        settings["sasl_plain_password"] = access.password
    transport = "SSL" if access.tls else "PLAINTEXT"
    settings["security_protocol"] = f"SASL_{transport}" if access.mechanism else transport
    return settings
