"""Where a broker is, and how one proves oneself to it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from gateway.config.mqtt import MqttSink, MqttSource
from gateway.config.security import Tls


class BadTlsFilesError(Exception):
    """The certificates or the key that the config names cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's address, and the login.

    Attributes:
        tls: None for a connection in clear.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    user: str | None = None
    password: str | None = None

    def __str__(self) -> str:
        return f"the MQTT broker {self.host}:{self.port}"


def broker_of(config: MqttSource | MqttSink) -> Broker:
    """Return the broker that the config means.

    Raises:
        BadTlsFilesError: a file for TLS cannot be used.
    """
    login = config.login
    return Broker(
        config.host,
        config.broker_port,
        None if config.tls is None else _context(config.tls),
        None if login is None else login.user,
        None if login is None else login.password.get_secret_value(),
    )


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=None if tls.ca is None else str(tls.ca))
    except (OSError, ssl.SSLError) as error:
        raise BadTlsFilesError(f"tls.ca ({tls.ca}) is no PEM file of authorities ({error}): give another") from error
    if tls.certificate is not None:
        try:
            context.load_cert_chain(str(tls.certificate), None if tls.key is None else str(tls.key))
        except (OSError, ssl.SSLError) as error:
            raise BadTlsFilesError(
                f"tls.certificate ({tls.certificate}) and tls.key ({tls.key}) are no PEM files that belong together "
                f"({error}): give the right ones"
            ) from error
    return context
