"""The config's sections about HTTP."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from gateway.config.connectors.journal import JournalConfig
from gateway.config.words.fields import Address, AnyPath, LongerThanZero, Section, Size


class ServerTlsConfig(Section):
    """The server's certificate and key.

    Attributes:
        certificate: PEM of the certificate, with those of the authorities between.
        key: PEM of its private key.
    """

    certificate: AnyPath = Field(examples=["server.crt"])
    key: AnyPath = Field(examples=["server.key"])


class HttpSourceConfig(Section):
    """JSON lines by POST. They are in the journal before the answer is sent.

    Attributes:
        listen: the address where it listens, host:port.
        path: the path of the URL.
        remember_keys_s: a request whose ``Idempotency-Key`` came within this time is answered, but not processed again.
        max_body_bytes: larger requests are refused.
        token: when given, requests must carry it as ``Authorization: Bearer``.
        tls: when given, the source speaks https.
        journal: what was received and is not committed yet.
    """

    type: Literal["http"]
    listen: Address = Field(examples=["127.0.0.1:8090"])
    path: str = Field(default="/events", pattern=r"^/[^\s{}?#]*$", examples=["/clicks"])
    remember_keys_s: LongerThanZero = Field(default=86_400.0, alias="remember_keys")
    max_body_bytes: Annotated[Size, Field(ge=1024, le=2**28)] = Field(default=2**24, alias="max_body")
    token: SecretStr | None = Field(default=None, examples=["${CLICKS_TOKEN}"])
    tls: ServerTlsConfig | None = None
    journal: JournalConfig = JournalConfig()

    @property
    def host(self) -> str:
        """Return the host part."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Return the port part; 0 lets the system choose."""
        return int(self.listen.rpartition(":")[2])


class HttpSinkConfig(Section):
    """Results as POSTs of JSON lines, with a stable ``Idempotency-Key``: at least once.

    Attributes:
        url: the target; an https server is trusted if the system (or the file ``SSL_CERT_FILE``) trusts its authority.
        token: when given, it is sent as ``Authorization: Bearer``.
    """

    type: Literal["http"]
    url: str = Field(pattern=r"^https?://\S+$", examples=["https://results.example/rows"])
    token: SecretStr | None = Field(default=None, examples=["${RESULTS_TOKEN}"])
