"""HTTP sources for tests."""

from __future__ import annotations

import datetime
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.config.connectors.http import HttpSourceConfig
from gateway.journal.journal import Journal
from gateway.journal.replica import Replica
from gateway.sources.http.httpsource import HttpReceiver
from gateway.sources.http.judging import Judge
from gateway.sources.journaled import JournaledSource
from infra.clock import Clock, SystemClock
from tests.connectors.journal_data import LIMIT_BYTES
from tests.connectors.source_contract import SCHEMA


@dataclass
class Site:
    """An opened HTTP source, and a client."""

    journal: Journal
    receiver: HttpReceiver
    source: JournaledSource
    client: aiohttp.ClientSession
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.receiver.port}/events"

    async def post(self, body: bytes, **headers: str) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Return status, body and headers of the answer."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.post(self.url, data=io.BytesIO(body), headers=given) as answer:
            return answer.status, await answer.json(), dict(answer.headers)


def parts_of(
    folder: Path,
    *,
    limit_bytes: int = LIMIT_BYTES,
    clock: Clock | None = None,
    body_s: float = 60.0,
    replica: Replica | None = None,
    **said: Any,
) -> tuple[Journal, HttpReceiver, JournaledSource]:
    """The parts of an HTTP source on a port that the system chooses."""
    config = HttpSourceConfig.model_validate({"type": "http", "listen": "127.0.0.1:0", **said})
    journal = Journal(
        folder / "journal",
        limit_bytes=limit_bytes,
        segment_bytes=limit_bytes,
        clock=clock or SystemClock(),
        remember_keys_s=config.remember_keys_s,
        replica=replica,
    )
    judge = Judge(lambda lines: source.dead_among(lines), SystemClock())
    receiver = HttpReceiver(config, journal, judge, folder / "dead-letters.jsonl", body_s=body_s)
    source = JournaledSource(journal, receiver)
    return journal, receiver, source


def server_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "server.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "server.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "server.pem", folder / "server.key"


@asynccontextmanager
async def site(
    folder: Path, *, limit_bytes: int = LIMIT_BYTES, clock: Clock | None = None, body_s: float = 60.0, **said: Any
) -> AsyncIterator[Site]:
    """An opened HTTP source with these config settings."""
    journal, receiver, source = parts_of(folder, limit_bytes=limit_bytes, clock=clock, body_s=body_s, **said)
    await source.open(SCHEMA)
    try:
        async with aiohttp.ClientSession() as client:
            yield Site(journal, receiver, source, client)
    finally:
        await source.close()
