"""Certificates, passwords and listeners for a mosquitto under test."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_KEY_FORM = (
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
)


@dataclass(frozen=True)
class Signed:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class TestAuthority:
    """An authority that signs for 127.0.0.1.

    Args:
        folder: for its files.
        name: the authority's name.
    """

    __test__ = False

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = folder / f"{name}.pem"
        signed = self._sign(name, self._key, ca=True)
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str) -> Signed:
        """Create a certificate for a client or server on this machine."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = Signed(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        signed.certificate.write_bytes(self._sign(name, key, ca=False).public_bytes(serialization.Encoding.PEM))
        signed.key.write_bytes(key.private_bytes(*_KEY_FORM))
        return signed

    def _sign(self, name: str, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._name)])
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    key_cert_sign=ca,
                    crl_sign=ca,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .sign(self._key, hashes.SHA256())
        )


def tls_listener(authority: TestAuthority, server: Signed, *, ask: bool = False) -> list[str]:
    """Return the lines of a TLS listener; with ``ask`` it requires a certificate of clients too."""
    return [
        f"cafile {authority.certificate}",
        f"certfile {server.certificate}",
        f"keyfile {server.key}",
        f"require_certificate {str(ask).lower()}",
    ]


def password_file(path: Path, users: dict[str, str]) -> Path:
    """Write a file of users and passwords with mosquitto's own program."""
    path.write_text("".join(f"{user}:{password}\n" for user, password in users.items()))
    path.chmod(0o600)
    subprocess.run(["mosquitto_passwd", "-U", str(path)], check=True, capture_output=True)
    return path


class OldBroker:
    """Stands before a mosquitto and refuses MQTT 5, like a broker that knows only 3.1.1.

    Args:
        port: mosquitto's port.
    """

    _PROTOCOL_LEVEL_AT = 8
    _REFUSED = b"\x20\x02\x00\x01"

    def __init__(self, port: int) -> None:
        self._behind = port
        self._pipes: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> OldBroker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._pipes:
            task.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(1000)
        if first[self._PROTOCOL_LEVEL_AT] >= 5:
            writer.write(self._REFUSED)
            writer.close()
            return
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self._behind)
        back_writer.write(first)
        for source, target in ((reader, back_writer), (back_reader, writer)):
            task = asyncio.create_task(self._pipe(source, target))
            self._pipes.add(task)

    async def _pipe(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                target.write(data)
                await target.drain()
        finally:
            target.close()


class RefusingBroker:
    """Refuses each message of QoS 2 with its PUBREC, and answers a PUBREL without a reason, like mosquitto 2.0.22.

    Attributes:
        released: the ids of the PUBRELs that came; after a refusal there must be none.
    """

    _CONNACK = b"\x20\x03\x00\x00\x00"
    _PUBLISH, _PUBREL = 3, 6
    _NOT_AUTHORIZED = b"\x87"

    def __init__(self) -> None:
        self.released: list[bytes] = []

    async def __aenter__(self) -> RefusingBroker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._packet(reader)
            writer.write(self._CONNACK)
            while True:
                kind, body = await self._packet(reader)
                if kind == self._PUBLISH:
                    id_at = 2 + int.from_bytes(body[:2], "big")
                    writer.write(b"\x50\x03" + body[id_at : id_at + 2] + self._NOT_AUTHORIZED)
                elif kind == self._PUBREL:
                    self.released.append(body[:2])
                    writer.write(b"\x70\x02" + body[:2])
        except asyncio.IncompleteReadError:
            writer.close()

    async def _packet(self, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        """Return the kind of a packet, and all after its length."""
        kind = (await reader.readexactly(1))[0] >> 4
        size_bytes, shift, more = 0, 0, True
        while more:
            part = (await reader.readexactly(1))[0]
            size_bytes |= (part & 0x7F) << shift
            shift, more = shift + 7, part >= 0x80
        return kind, await reader.readexactly(size_bytes)
