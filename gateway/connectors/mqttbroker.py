"""The address of an MQTT broker, and the login."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from gateway.config.connectors.mqtt import MqttSinkConfig, MqttSourceConfig
from infra.clienttls import client_context


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's address, and the login.

    Attributes:
        tls: None for an unencrypted connection.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    user: str | None = None
    password: str | None = None

    def __str__(self) -> str:
        return f"the MQTT broker {self.host}:{self.port}"


def broker_of(config: MqttSourceConfig | MqttSinkConfig) -> Broker:
    """Return the broker of a config.

    Raises:
        BadTlsFilesError: a file for TLS cannot be used.
    """
    login = config.login
    return Broker(
        config.host,
        config.broker_port,
        None if config.tls is None else client_context(*config.tls.files),
        None if login is None else login.user,
        None if login is None else login.password.get_secret_value(),
    )
