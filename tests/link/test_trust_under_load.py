"""Unknown peers, expired and replayed proofs, crowds and new certificates, while a link is in use."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from infra.clock import SystemClock
from infra.link.client import HostLink, LinkLost, enrol
from infra.link.keys.certificates import Credential, Purpose, issue, new_authority, new_key
from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import Authority, TrustError, UserData, new_token
from infra.link.server import MAX_CONNECTIONS, MAX_STRANGERS, HostServer
from infra.link.shaper import ShapedRelay
from tests.link.link_site import HOST, RUNTIME, Load, Site, ca_of, new_site, within
from tests.support.waiting import until

NOW = dt.datetime.now(dt.UTC)
STRANGERS = 1000


@pytest.fixture
def believed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each connection whose certificate the host has accepted; only then does it read a frame."""
    seen: list[str] = []
    met = HostIdentity.met

    def spied(identity: HostIdentity, gateway_der: bytes) -> None:
        seen.append("a connection")
        met(identity, gateway_der)

    monkeypatch.setattr(HostIdentity, "met", spied)
    return seen


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allows enough open files for a crowd of connections with both ends in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * STRANGERS + 500
    if before[0] < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def expired(authority: Authority, name: str, purpose: Purpose) -> Credential:
    """A certificate that was valid until yesterday."""
    key, ca = new_key(), ca_of(authority)
    right = issue(ca, key.public_key(), name, purpose, NOW - dt.timedelta(days=9))
    builder = x509.CertificateBuilder(
        issuer_name=right.issuer,
        subject_name=right.subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=NOW - dt.timedelta(days=9),
        not_valid_after=NOW - dt.timedelta(days=1),
        extensions=list(right.extensions),
    )
    return Credential(key, builder.sign(ca.key, hashes.SHA256()))


def as_gateway(ca: Credential, gateway: Credential, file: Path) -> Authority:
    file.write_bytes(gateway.to_pem())
    return Authority(ca, gateway, file)


async def refused(site: Site, authority: Authority, session: str = "s9") -> str:
    """Try to connect, and return why it failed; TLS can report the reason only if the connection lives long enough."""
    with pytest.raises((TrustError, LinkLost)) as refusal:
        await within(HostLink.connect(site.address, authority, HOST, session, clock=SystemClock()))
    return str(refusal.value)


async def test_an_expired_gateway_is_refused_before_anything_is_read(
    site: Site, tmp_path: Path, believed: list[str]
) -> None:
    late = expired(site.authority, "gateway", Purpose.GATEWAY)
    await refused(site, as_gateway(ca_of(site.authority), late, tmp_path / "late.pem"))
    assert believed == []
    await site.started()


async def test_a_gateway_of_a_foreign_authority_is_refused_before_anything_is_read(
    site: Site, tmp_path: Path, believed: list[str]
) -> None:
    foreign = new_authority(NOW)
    key = new_key()
    shown = Credential(key, issue(foreign, key.public_key(), "gateway", Purpose.GATEWAY, NOW))
    # It trusts the host, so that it is the host who refuses.
    await refused(site, as_gateway(ca_of(site.authority), shown, tmp_path / "f.pem"))
    assert believed == []
    await site.started()


async def test_an_expired_host_is_refused(authority: Authority, believed: list[str]) -> None:
    user_data = UserData(host=HOST, ca_pem=authority.ca_pem, token=new_token())
    identity = HostIdentity(expired(authority, HOST, Purpose.HOST), authority.ca_pem, HOST, None)
    server = HostServer(identity, user_data, RUNTIME, clock=SystemClock())
    site = Site(authority, server, user_data, await server.start())
    try:
        assert "certificate has expired" in await refused(site, authority)
        assert believed == []
    finally:
        await server.close("test over")


async def test_a_token_that_was_spent_buys_nothing_on_another_machine(authority: Authority) -> None:
    async with new_site(authority, enrolled=False) as first, new_site(authority, enrolled=False) as thief:
        await first.enrol()
        with pytest.raises(TrustError, match="does not have its token"):
            await within(enrol(thief.address, authority, HOST, first.user_data.token, 10.0))
        assert "no trusted connection" in await refused(thief, authority)


async def test_a_thousand_silent_strangers_neither_lose_a_run_nor_shut_a_gateway_out(
    site: Site, believed: list[str], many_files: None
) -> None:
    load = Load(site)
    link = await site.link()
    await load.converse(link, 100)
    present = len(believed)
    crowd: list[socket.socket] = []
    loop = asyncio.get_running_loop()

    async def gather_the_crowd() -> None:
        for _ in range(STRANGERS):
            stranger = socket.socket()
            stranger.setblocking(False)
            crowd.append(stranger)
            await within(loop.sock_connect(stranger, site.address))
            # The beginning of a TLS record, and then no more.
            await loop.sock_sendall(stranger, b"\x16\x03\x01\x02\x00")

    gathering = asyncio.create_task(gather_the_crowd())
    upto = 100
    while not gathering.done():
        upto += 50
        await load.converse(link, upto)
    await gathering
    assert link.lost is None
    assert site.server.connection_count <= MAX_CONNECTIONS + MAX_STRANGERS
    assert len(believed) == present, "nothing that a stranger said was read"
    newer = await site.link("s2")
    await load.converse(newer, upto + 100)
    assert load.answered == list(range(0, upto + 100, 10))
    await load.end()
    for stranger in crowd:
        stranger.close()


async def test_a_gateway_far_away_gets_in_while_strangers_keep_coming(site: Site, many_files: None) -> None:
    """Its handshake takes some 0.2 s; meanwhile dozens of unknown peers connect and each needs a place."""
    crowd: list[socket.socket] = []
    loop = asyncio.get_running_loop()

    async def keep_coming(address: tuple[str, int]) -> None:
        while len(crowd) < STRANGERS:
            stranger = socket.socket()
            stranger.setblocking(False)
            crowd.append(stranger)
            await loop.sock_connect(stranger, address)
            with contextlib.suppress(OSError):  # the host may have ended it already
                await loop.sock_sendall(stranger, b"\x16\x03\x01\x02\x00")
            await asyncio.sleep(0.003)

    coming = asyncio.create_task(keep_coming(site.address))
    relay = ShapedRelay(site.address, 0.035, 50e6 / 8, site.clock)
    site.address = await relay.start()
    try:
        await until(lambda: len(crowd) >= 50)
        await site.link()
        assert not coming.done(), "they came all the while"
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        await relay.close()
        for stranger in crowd:
            stranger.close()


async def test_new_certificates_under_load_lose_nothing(site: Site, tmp_path: Path) -> None:
    load = Load(site)
    link = await site.link()
    shown = link.pair.data.peer_certificate_der()
    await load.converse(link, 100)

    # The host's: from the next handshake on, and the link that there is goes on.
    site.server.identity.install(site.authority.sign(site.server.identity.csr(), HOST))
    await load.converse(link, 200)

    # The gateway's, of the same authority: the newer session takes over.
    key = new_key()
    fresh = Credential(key, issue(ca_of(site.authority), key.public_key(), "gateway", Purpose.GATEWAY, NOW))
    site.authority = as_gateway(ca_of(site.authority), fresh, tmp_path / "fresh.pem")
    newer = await site.link("s2")
    await load.converse(newer, 300)
    assert newer.pair.data.peer_certificate_der() != shown
    assert load.answered == list(range(0, 300, 10))
    await load.end()
