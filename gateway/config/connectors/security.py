"""The config's keys for authentication, shared by all connectors."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from gateway.config.words.fields import AnyPath, Finding, Section, refuse


class TlsConfig(Section):
    """TLS towards a server: trusted authorities, and the client certificate.

    Attributes:
        ca: PEM of the trusted authorities. Default: the system's.
        certificate: PEM of the client certificate, if the server requires one; with ``key``.
        key: PEM of its private key.
    """

    ca: AnyPath | None = Field(default=None, examples=["ca.pem"])
    certificate: AnyPath | None = Field(default=None, examples=["client.pem"])
    key: AnyPath | None = Field(default=None, examples=["client.key"])

    @model_validator(mode="after")
    def _certificate_and_key(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            missing = "key" if self.key is None else "certificate"
            refuse([Finding(key=(missing,), what="is missing; certificate and key go together")])
        return self

    @property
    def files(self) -> tuple[str, str, str]:
        """Return the paths of ``ca``, ``certificate`` and ``key``; empty for none."""
        ca, certificate, key = ("" if each is None else str(each) for each in (self.ca, self.certificate, self.key))
        return ca, certificate, key


class ServerTlsConfig(Section):
    """TLS of a server: its certificate and key, in PEM. Renewed files are used without a restart.

    Attributes:
        certificate: the server's, then those that lead to its authority, if there are any.
        key: its private key, without a password.
    """

    certificate: AnyPath = Field(examples=["server.crt"])
    key: AnyPath = Field(examples=["server.key"])


class LoginConfig(Section):
    """A user and a password.

    Attributes:
        user: the name of the user.
        password: the password; write it as ``${VAR}``.
    """

    user: str = Field(min_length=1, examples=["spillway"])
    password: SecretStr = Field(examples=["${BROKER_PASSWORD}"])


class SaslConfig(LoginConfig):
    """How a Kafka client logs in.

    Attributes:
        mechanism: the SASL mechanism.
    """

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
