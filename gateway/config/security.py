"""The config's words about proving who somebody is, shared by all connectors."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from gateway.config.fields import AnyPath, Section


class Tls(Section):
    """TLS towards a server: whom to believe, and what to show.

    Attributes:
        ca: PEM of the authorities that are believed; the system's own without it.
        certificate: PEM that is shown to a server that asks for one; with ``key``.
        key: PEM of its private key.
    """

    ca: AnyPath | None = None
    certificate: AnyPath | None = None
    key: AnyPath | None = None


class Login(Section):
    """A user and a password; write the password as ``${VAR}``."""

    user: str = Field(min_length=1)
    password: SecretStr


class Sasl(Login):
    """How a Kafka client logs in."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
