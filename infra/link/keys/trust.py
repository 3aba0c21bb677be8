"""Who may connect to a link: the gateway's authority, and what a new VM learns about it.

The gateway creates its own authority. A new host has no certificate of it yet, so it proves itself once with a token
from its user data. The proof is bound to the certificate that the gateway sees on the connection. Then the gateway
signs the host's key, the token is spent, and both use only mutual TLS 1.3.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from infra.link.keys.certificates import (
    Credential,
    Purpose,
    TrustError,
    check_issued,
    checked_host_name,
    is_issued,
    issue,
    new_authority,
    new_key,
    requested_key,
)
from infra.link.keys.secret_files import create_private, sync_directory

__all__ = ["Authority", "TrustError", "UserData", "enrol_mac", "new_token", "same_mac"]

TOKEN_BYTES = 32
NONCE_BYTES = 32
CODE_PATH = "code_path"
"""Key of ``UserData.extra``: the folder with the user's code on a VM of another site."""
NOTICE = "notice"
"""Key of ``UserData.extra``: the provider whose metadata service announces that a VM is reclaimed; spot VMs only."""
SPARK_CONF = "spark_conf"
"""Key of ``UserData.extra``: the user's Spark settings for this host, a JSON object of strings."""
GATEWAY_NAME = "gateway"
_CA, _GATEWAY = "ca.pem", "gateway.pem"
_NEXT_CA, _NEXT_GATEWAY = "next-ca.pem", "next-gateway.pem"


def new_token() -> bytes:
    """Return a one-time token for one new host."""
    return secrets.token_bytes(TOKEN_BYTES)


def enrol_mac(token: bytes, certificate_der: bytes, nonce: bytes) -> bytes:
    """Return HMAC-SHA256(token, sha256(certificate) || nonce): it proves that the sender holds the token."""
    return hmac.digest(token, hashlib.sha256(certificate_der).digest() + nonce, "sha256")


def same_mac(mac: bytes, other: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(mac, other)


class UserData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The start-up data of a new VM; it holds a secret, so only the owner may read its file.

    Attributes:
        host: its name; a DNS name in lower case.
        ca_pem: certificate of the gateway's authority.
        token: 32 random bytes, good for one enrolment (base64 in JSON).
        listen_host: address to listen on.
        listen_port: port to listen on; 0: any free one.
        orphan_after_s: the host ends itself when no gateway was connected for this long.
        extra: further settings of the host's program.
    """

    host: str
    ca_pem: str
    token: bytes
    listen_host: str = "127.0.0.1"
    listen_port: int = 0
    orphan_after_s: float = 300.0
    extra: dict[str, str] = {}

    def to_json(self) -> str:
        """Return the text that ``from_json`` reads."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> UserData:
        """Read user data.

        Raises:
            TrustError: it is incomplete, or its name, token or port is invalid.
        """
        try:
            data = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TrustError(f"the user data cannot be read: {error}") from error
        checked_host_name(data.host)
        if len(data.token) != TOKEN_BYTES or not 0 <= data.listen_port < 1 << 16:
            raise TrustError("the user data holds no token of 32 bytes, or no port between 0 and 65535")
        return data

    def with_spark_conf(self, conf: Mapping[str, str]) -> UserData:
        """Return a copy with these Spark settings."""
        extra = {name: value for name, value in self.extra.items() if name != SPARK_CONF}
        if conf:
            extra[SPARK_CONF] = msgspec.json.encode(dict(conf), order="sorted").decode()
        return msgspec.structs.replace(self, extra=extra)

    @property
    def spark_conf(self) -> dict[str, str]:
        """The user's Spark settings for this host.

        Raises:
            TrustError: they are no JSON object of strings.
        """
        try:
            return msgspec.json.decode(self.extra.get(SPARK_CONF, "{}"), type=dict[str, str])
        except msgspec.DecodeError as error:
            raise TrustError(f"the Spark settings in the user data cannot be read: {error}") from error


class Authority:
    """The gateway's certificate authority and its own client certificate.

    Use ``open``; the constructor does no I/O.

    Renewal has three steps, and a gateway that was killed in between continues it: ``following`` creates the next
    authority, whose hosts are trusted from then on; the hosts are renewed one by one; ``give_way`` replaces this
    authority by the next one.
    """

    def __init__(self, ca: Credential, gateway: Credential, gateway_file: Path) -> None:
        self._ca = ca
        self._next_ca: Credential | None = None
        self._gateway_file = gateway_file
        self.folder = gateway_file.parent
        self.gateway_certificate = gateway.certificate

    @classmethod
    def open(cls, directory: Path) -> Authority:
        """Load the authority in ``directory``, or create one there (files for the owner only, written atomically).

        Raises:
            TrustError: a file is damaged, expired, or does not belong to the others.
        """
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = dt.datetime.now(dt.UTC)
        if (directory / _NEXT_GATEWAY).exists() and not (directory / _NEXT_CA).exists():
            _rename(directory, _NEXT_GATEWAY, _GATEWAY)  # the gateway was killed in the middle of ``give_way``
        ca = _load_or_create(directory / _CA, lambda: new_authority(now))
        if ca.certificate.not_valid_after_utc <= now:
            raise TrustError(f"the authority in {directory} expired; remove the folder and enrol all hosts again")

        def new_gateway() -> Credential:
            key = new_key()
            return Credential(key, issue(ca, key.public_key(), GATEWAY_NAME, Purpose.GATEWAY, now))

        gateway_file = directory / _GATEWAY
        gateway = _load_or_create(gateway_file, new_gateway)
        check_issued(gateway.certificate, ca.certificate, GATEWAY_NAME, Purpose.GATEWAY)
        authority = cls(ca, gateway, gateway_file)
        if (directory / _NEXT_CA).exists():
            authority.following()
        return authority

    def following(self) -> Authority:
        """Return the authority that will replace this one; always the same one until then, also after a restart.

        Raises:
            TrustError: its files are damaged.
            OSError: it cannot be written.
        """
        directory, now = self.folder, dt.datetime.now(dt.UTC)
        if (directory / _NEXT_GATEWAY).exists() and not (directory / _NEXT_CA).exists():
            raise TrustError(f"{directory}: the disk failed while certificates were renewed; restart the gateway")
        ca = _load_or_create(directory / _NEXT_CA, lambda: new_authority(now))

        def new_gateway() -> Credential:
            key, serial = new_key(), self.gateway_certificate.serial_number
            return Credential(key, issue(ca, key.public_key(), GATEWAY_NAME, Purpose.GATEWAY, now, serial))

        file = directory / _NEXT_GATEWAY
        gateway = _load_or_create(file, new_gateway)
        check_issued(gateway.certificate, ca.certificate, GATEWAY_NAME, Purpose.GATEWAY)
        self._next_ca = ca
        return Authority(ca, gateway, file)

    def give_way(self, following: Authority) -> None:
        """Become ``following``, durably: hosts that were not renewed are rejected from now on.

        Raises:
            OSError: the disk fails; the next start completes the step.
        """
        directory = self.folder
        _rename(directory, _NEXT_CA, _CA)
        _rename(directory, _NEXT_GATEWAY, _GATEWAY)
        self._ca, self._next_ca = following._ca, None
        self.gateway_certificate = following.gateway_certificate

    @property
    def fleet(self) -> str:
        """The tag by which the gateway's VMs are found, in hex; it stays the same when certificates are renewed."""
        return self.gateway_certificate.serial_number.to_bytes(20, "big").hex()

    @property
    def ca_pem(self) -> str:
        """The authority's certificate, for ``UserData``."""
        return self._ca.certificate_pem.decode()

    def client_context(self) -> ssl.SSLContext:
        """Return a context for mutual TLS 1.3; the connection's ``server_hostname`` must be the host's name."""
        context = self._context()
        for ca in filter(None, (self._ca, self._next_ca)):
            context.load_verify_locations(cadata=ca.certificate_pem.decode())
        context.hostname_checks_common_name = False
        return context

    def enrol_context(self) -> ssl.SSLContext:
        """Return a context for a host without a signed certificate: TLS proves the gateway, the MAC proves the host."""
        context = self._context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # the MAC over this certificate replaces a signature
        return context

    def sign(self, csr_pem: bytes, host_name: str) -> bytes:
        """Sign a host's key; the certificate carries ``host_name``, whatever the request says.

        Returns:
            the certificate, PEM.

        Raises:
            TrustError: the request is not signed by its own key, or cannot be read.
        """
        key = requested_key(csr_pem)
        certificate = issue(self._ca, key, checked_host_name(host_name), Purpose.HOST, dt.datetime.now(dt.UTC))
        return certificate.public_bytes(Encoding.PEM)

    def has_issued(self, certificate_der: bytes, host_name: str) -> bool:
        """Return whether this authority, or the one that follows it, issued that certificate to that host."""
        try:
            certificate = x509.load_der_x509_certificate(certificate_der)
        except ValueError:
            return False
        return any(
            is_issued(certificate, ca.certificate, host_name, Purpose.HOST)
            for ca in filter(None, (self._ca, self._next_ca))
        )

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self._gateway_file)
        return context


def _rename(directory: Path, old: str, new: str) -> None:
    (directory / old).replace(directory / new)
    sync_directory(directory)


def _load_or_create(path: Path, create: Callable[[], Credential]) -> Credential:
    content = path.read_bytes() if path.exists() else create_private(path, create().to_pem())
    return Credential.from_pem(content, str(path))
