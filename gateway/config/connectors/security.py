"""The config's keys for authentication, shared by all connectors."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from gateway.config.words.fields import AnyPath, Finding, Section, refuse


class TlsConfig(Section):
    """TLS towards a server: trusted authorities, and the client certificate.

    Attributes:
        ca: PEM of the trusted authorities; default: the system's.
        certificate: PEM of the client certificate, if the server requires one; with ``key``.
        key: PEM of its private key.
    """

    ca: AnyPath | None = None
    certificate: AnyPath | None = None
    key: AnyPath | None = None

    @model_validator(mode="after")
    def _certificate_and_key(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            missing = "key" if self.key is None else "certificate"
            refuse([Finding(key=(missing,), what="is missing; certificate and key go together")])
        return self


class ServerTlsConfig(Section):
    """TLS of a server: its certificate and key, in PEM. Renewed files are used without a restart.

    Attributes:
        certificate: the server's, then those that lead to its authority, if there are any.
        key: its private key, without a password.
    """

    certificate: AnyPath
    key: AnyPath


class LoginConfig(Section):
    """A user and a password; write the password as ``${VAR}``."""

    user: str = Field(min_length=1)
    password: SecretStr


class SaslConfig(LoginConfig):
    """How a Kafka client logs in."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
