"""Which peers are admitted over real TLS, and which are refused."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from infra.clock import SystemClock
from infra.link.channel import STREAM_LIMIT_BYTES, Channel, LinkLost
from infra.link.client import HostLink, enrol
from infra.link.frames import HEADER_BYTES, encode_frame
from infra.link.keys.trust import Authority, TrustError, new_token
from infra.link.server import MAX_CONNECTIONS, MAX_STRANGERS, SessionStarted
from infra.messages import PROTOCOL, Credit, EnrolGrant, EnrolProof, EnrolRequest, GatewayHello, HostHello
from tests.link.link_site import HOST, Site, new_site, within
from tests.support.waiting import until


async def dial(site: Site, context: ssl.SSLContext, name: str = HOST) -> Channel:
    reader, writer = await asyncio.open_connection(
        *site.address, ssl=context, server_hostname=name, limit=STREAM_LIMIT_BYTES
    )
    return Channel(reader, writer, "data")


async def reason_of(channel: Channel) -> str:
    """Read until the host closes the connection."""
    try:
        while True:
            await within(channel.receive())
    except LinkLost as lost:
        return lost.reason
    finally:
        await channel.close("test")


async def is_cut_off(channel: Channel) -> bool:
    """Send a greeting; return whether TLS closed the connection without a message, which only a read shows."""
    try:
        await channel.send(hello("s"))
        await within(channel.receive())
    except LinkLost as lost:
        return "goodbye" not in lost.reason
    finally:
        channel.abort()
    return False


async def connect(site: Site, authority: Authority, host_name: str = HOST) -> HostLink:
    return await within(HostLink.connect(site.address, authority, host_name, "s", clock=SystemClock()))


def hello(session: str, channel: str = "control") -> GatewayHello:
    return GatewayHello(protocol=PROTOCOL, session=session, channel="control" if channel == "control" else "data")


async def test_a_host_with_another_token_is_not_signed(new_host: Site) -> None:
    with pytest.raises(TrustError, match="does not have its token"):
        await within(enrol(new_host.address, new_host.authority, HOST, new_token(), 10))
    await new_host.enrol()


async def test_a_token_is_good_for_one_enrolment(new_host: Site) -> None:
    await new_host.enrol()
    channel = await dial(new_host, new_host.authority.enrol_context())
    await channel.send(EnrolRequest(nonce=bytes(32)))
    assert "its token is spent" in await reason_of(channel)


async def test_of_two_enrolments_at_once_one_is_granted(new_host: Site) -> None:
    channels = [await dial(new_host, new_host.authority.enrol_context()) for _ in range(2)]
    proofs = []
    for channel in channels:
        await channel.send(EnrolRequest(nonce=bytes(32)))
        proofs.append((await within(channel.receive())).message)
    for channel, proof in zip(channels, proofs, strict=True):
        assert isinstance(proof, EnrolProof)
        await channel.send(EnrolGrant(certificate_pem=new_host.authority.sign(proof.csr_pem, HOST)))
    reasons = [await reason_of(channel) for channel in channels]
    assert sorted("spent" in reason for reason in reasons) == [False, True]


async def test_enrolling_an_enrolled_host_again_changes_nothing(new_host: Site) -> None:
    await new_host.enrol()
    await new_host.enrol()
    assert await new_host.started()


async def test_a_bad_grant_does_not_spend_the_token(new_host: Site, tmp_path: Path) -> None:
    channel = await dial(new_host, new_host.authority.enrol_context())
    await channel.send(EnrolRequest(nonce=bytes(32)))
    proof = (await within(channel.receive())).message
    assert isinstance(proof, EnrolProof)
    stranger = Authority.open(tmp_path / "stranger")
    await channel.send(EnrolGrant(certificate_pem=stranger.sign(proof.csr_pem, HOST)))
    assert "not issued by" in await reason_of(channel)
    await new_host.enrol()


async def test_a_short_nonce_is_refused(new_host: Site) -> None:
    channel = await dial(new_host, new_host.authority.enrol_context())
    await channel.send(EnrolRequest(nonce=b"short"))
    assert "a nonce of 5 bytes" in await reason_of(channel)


async def test_a_host_that_restarts_need_not_enrol_again(authority: Authority, tmp_path: Path) -> None:
    async with new_site(authority, enrolled=False, directory=tmp_path / "host") as site:
        await site.enrol()
    async with new_site(authority, enrolled=False, directory=tmp_path / "host") as site:
        assert await site.started()


async def test_an_unsigned_host_is_not_linked(new_host: Site) -> None:
    with pytest.raises(TrustError, match="self-signed"):
        await connect(new_host, new_host.authority)


async def test_a_client_without_certificate_is_refused(site: Site) -> None:
    context = ssl.create_default_context(cadata=site.authority.ca_pem)
    channel = await dial(site, context)
    assert await is_cut_off(channel)


async def test_a_gateway_of_another_authority_is_refused_and_refuses(site: Site, tmp_path: Path) -> None:
    stranger = Authority.open(tmp_path / "stranger")
    with pytest.raises(TrustError):
        await connect(site, stranger)
    with pytest.raises((TrustError, LinkLost)):
        await within(enrol(site.address, stranger, HOST, new_token(), 10))


async def test_a_host_cannot_pose_as_gateway(site: Site, tmp_path: Path) -> None:
    async with new_site(site.authority, enrolled=False, directory=tmp_path / "host") as other:
        await other.enrol()
    context = ssl.create_default_context(cadata=site.authority.ca_pem)
    context.load_cert_chain(tmp_path / "host" / "host.pem")
    channel = await dial(site, context)
    assert await is_cut_off(channel)


async def test_a_host_of_another_name_is_refused(site: Site) -> None:
    with pytest.raises(TrustError, match="cloud-2"):
        await connect(site, site.authority, "cloud-2")


async def test_old_tls_is_refused(site: Site) -> None:
    context = site.authority.client_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError):
        await dial(site, context)


async def test_a_connection_must_begin_with_a_greeting(site: Site) -> None:
    channel = await dial(site, site.authority.client_context())
    await channel.send(Credit(query="q", epoch=1, bytes=1))
    assert "Credit instead of a greeting" in await reason_of(channel)


async def test_a_data_connection_needs_its_control_connection(site: Site) -> None:
    channel = await dial(site, site.authority.client_context())
    await channel.send(hello("s", "data"))
    assert "no control connection of session s" in await reason_of(channel)


async def test_a_session_greets_once(site: Site) -> None:
    first, second = [await dial(site, site.authority.client_context()) for _ in range(2)]
    await first.send(hello("s"))
    assert isinstance((await within(first.receive())).message, HostHello)
    await second.send(hello("s"))
    assert "greeting already" in await reason_of(second)
    first.abort()


async def test_a_late_half_of_an_older_session_does_not_replace_a_newer_one(site: Site) -> None:
    control, data = [await dial(site, site.authority.client_context()) for _ in range(2)]
    await control.send(hello("older"))
    assert isinstance((await within(control.receive())).message, HostHello)
    await site.started("newer")
    await data.send(hello("older", "data"))
    assert "session newer is newer than older" in await reason_of(data)
    assert "session newer is newer than older" in await reason_of(control)
    assert await site.server.send("newer", Credit(query="q", epoch=1, bytes=1))


async def test_garbage_is_answered_with_a_reason(site: Site) -> None:
    reader, writer = await asyncio.open_connection(
        *site.address, ssl=site.authority.client_context(), server_hostname=HOST
    )
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(100_000))
    answer = await within(reader.read(-1))
    assert b"Bye" in answer[HEADER_BYTES:]
    assert b"not a Spillway frame" in answer
    writer.transport.abort()


async def test_plain_text_is_dropped(site: Site) -> None:
    reader, writer = await asyncio.open_connection(*site.address)
    writer.write(b"".join(encode_frame(hello("s"))))
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await within(reader.readexactly(1000))
    writer.transport.abort()


async def test_connections_are_limited_and_free_their_place(site: Site) -> None:
    idle = [await asyncio.open_connection(*site.address) for _ in range(MAX_STRANGERS)]
    one_more = await asyncio.open_connection(*site.address)
    assert await within(idle[0][0].read(1)) == b"", "the oldest stranger goes"
    await site.link()
    for _, each in [*idle, one_more]:
        each.transport.abort()
    assert await within(site.server.receive()) == ("s1", SessionStarted("s1"), b"")


async def test_even_those_who_are_known_have_a_limit(site: Site) -> None:
    context = site.authority.client_context()
    known = [await dial(site, context) for _ in range(MAX_CONNECTIONS)]
    await until(lambda: site.server.connection_count == MAX_CONNECTIONS and not site.server.stranger_count)
    assert "8 connections are open" in await reason_of(await dial(site, context))
    await known.pop().close("test")
    await until(lambda: site.server.connection_count < MAX_CONNECTIONS)
    one_more = await dial(site, context)
    await one_more.send(hello("s1"))
    assert isinstance((await within(one_more.receive())).message, HostHello)
    for channel in [*known, one_more]:
        channel.abort()


async def test_nobody_there_is_no_question_of_trust(authority: Authority) -> None:
    with pytest.raises(LinkLost, match="cannot reach cloud-1"):
        await HostLink.connect(("127.0.0.1", 1), authority, HOST, "s", clock=SystemClock())


async def test_a_host_that_does_not_answer_is_given_up(authority: Authority) -> None:
    silent: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: silent.append(writer), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    with pytest.raises(LinkLost, match="did not answer within"):
        await HostLink.connect(address, authority, HOST, "s", clock=SystemClock(), connect_timeout_s=0.2)
    with pytest.raises(LinkLost, match="did not answer within"):
        await enrol(address, authority, HOST, new_token(), 0.2)
    server.close()
    for writer in silent:
        writer.transport.abort()
