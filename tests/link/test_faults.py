"""Links that break, stall, or whose peer speaks another protocol."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from infra.clock import SystemClock
from infra.link.channel import LinkLost
from infra.link.client import HostLink, enrol
from infra.link.frames import encode_frame
from infra.link.inbox import MAX_CONTROL_FRAMES
from infra.link.keys.trust import Authority, UserData, new_token
from infra.link.server import SessionEnded, SessionStarted
from infra.messages import Credit, Ping, Shutdown
from tests.link.link_site import DEADLINE_S, HOST, Site, completed, lost_reason, new_site, run, within
from tests.support.waiting import until

CREDIT = Credit(query="q", epoch=1, bytes=1)
MEGABYTE = bytes(1 << 20)


async def ended_reason(site: Site, session: str = "s1") -> str:
    """Read until the session ends, and return the reason."""
    while True:
        name, message, _ = await within(site.server.receive())
        if isinstance(message, SessionEnded):
            assert name == session
            return message.reason


@pytest.mark.parametrize("which", ["control", "data"])
async def test_a_malformed_frame_of_the_gateway_ends_the_session_with_a_reason(site: Site, which: str) -> None:
    link = await site.started()
    getattr(link.pair, which).transport.write(b"what is this? " * 100)
    assert "not a Spillway frame: it begins with b'what'" in await ended_reason(site)
    assert "not a Spillway frame: it begins with b'what'" in await lost_reason(link)


@pytest.mark.parametrize("which", ["control", "data"])
async def test_a_malformed_frame_of_the_host_ends_the_link_with_a_reason(site: Site, which: str) -> None:
    link = await site.started()
    damaged = bytearray(b"".join(encode_frame(completed(), b"rows")))
    damaged[-1] ^= 1
    getattr(site.server.pair, which).transport.write(bytes(damaged))
    expected = "body is damaged" if which == "data" else "a payload of 4 bytes; at most 0 are accepted"
    assert expected in await lost_reason(link)
    assert expected in await ended_reason(site)


async def test_a_message_on_the_wrong_connection_ends_the_link(site: Site) -> None:
    link = await site.started()
    await link.pair.data.send(CREDIT)
    assert "Credit does not belong on the data channel" in await ended_reason(site)
    assert "Credit does not belong on the data channel" in await lost_reason(link)


class StumblingClock(SystemClock):
    """A clock that raises an error once the test requests it."""

    stumbles = False

    def now(self) -> float:
        if self.stumbles:
            raise ZeroDivisionError("here")
        return super().now()


async def test_a_mistake_of_our_own_ends_the_link_too(site: Site) -> None:
    site.clock = clock = StumblingClock()
    link = await site.started()
    clock.stumbles = True
    assert "internal error: ZeroDivisionError" in await lost_reason(link)
    assert "internal error: ZeroDivisionError" in await ended_reason(site)


async def test_what_cannot_be_sent_is_our_own_mistake_and_harms_nothing(site: Site) -> None:
    link = await site.started()
    with pytest.raises(ValueError, match="with a payload on a control channel"):
        await link.send(CREDIT, b"payload")
    with pytest.raises(ValueError, match="a payload may be"):
        await link.send(run(), bytes((64 << 20) + 1))
    await link.send(run(), b"rows")
    assert await within(site.server.receive()) == ("s1", run(), b"rows")


async def test_heartbeats_and_control_pass_while_nobody_reads_data(site: Site) -> None:
    link = await site.link(beat_s=0.02, timeout_s=2.0)
    assert await within(site.server.receive()) == ("s1", SessionStarted("s1"), b"")
    sending = asyncio.create_task(send_many(site, 64))
    await until(lambda: link.pair.inbox.data_bytes > 8 << 20)
    control = link.pair.control
    sent_bytes, received_bytes = control.sent_bytes, control.received_bytes
    beat_bytes = len(b"".join(encode_frame(Ping(sent_s=site.clock.now()))))
    await until(lambda: control.sent_bytes - sent_bytes > 150 * beat_bytes)
    assert control.received_bytes - received_bytes > 140 * beat_bytes, "pings were not answered"
    assert not sending.done(), "the host could send without bound to a gateway that does not read"
    assert await site.server.send("s1", CREDIT)
    await until(lambda: link.pair.inbox.control_count == 1)
    assert await within(link.receive()) == (CREDIT, b"")
    for seq in range(64):
        assert await within(link.receive()) == (completed(seq), MEGABYTE)
    await within(sending)


async def send_many(site: Site, count: int) -> None:
    for seq in range(count):
        assert await site.server.send("s1", completed(seq), MEGABYTE)


async def test_a_flood_of_control_messages_that_nobody_reads_ends_the_link(site: Site) -> None:
    link = await site.started()
    for _ in range(MAX_CONTROL_FRAMES + 1):
        await site.server.send("s1", CREDIT)
    await until(lambda: link.lost is not None)
    assert "control messages wait unread" in await lost_reason(link)


async def test_frames_of_many_senders_do_not_mix(site: Site) -> None:
    link = await site.started()
    rng = random.Random(3)
    payloads = {seq: rng.randbytes(rng.choice([0, 10, 200_000, 262_000, 700_000, 2_000_000])) for seq in range(40)}
    sends = [asyncio.create_task(link.send(run(seq), payload)) for seq, payload in payloads.items()]
    received = {}
    for _ in payloads:
        _, message, payload = await within(site.server.receive())
        assert isinstance(message, type(run()))
        received[message.first_seq] = payload
    await within(asyncio.gather(*sends))
    assert received == payloads


async def test_a_cancelled_send_leaves_no_half_frame(site: Site) -> None:
    link = await site.started()
    sends = [asyncio.create_task(link.send(run(seq), MEGABYTE * 8)) for seq in range(4)]
    await until(lambda: link.stats.sent_bytes > 1 << 20)
    for send in sends:
        send.cancel()
    await asyncio.gather(*sends, return_exceptions=True)
    await_last = asyncio.create_task(link.send(run(99), b"last"))
    last_seq = -1
    while last_seq != 99:
        _, message, payload = await within(site.server.receive())
        assert isinstance(message, type(run()))
        assert payload == (b"last" if message.first_seq == 99 else MEGABYTE * 8)
        last_seq = message.first_seq
    await within(await_last)


async def test_what_arrived_before_the_end_is_still_read(site: Site) -> None:
    link = await site.started()
    for seq in range(3):
        assert await site.server.send("s1", completed(seq), b"rows")
    await until(lambda: link.pair.inbox.data_count == 3)
    await site.server.close("the host drains")
    assert [await within(link.receive()) for _ in range(3)] == [(completed(seq), b"rows") for seq in range(3)]
    with pytest.raises(LinkLost, match="the host drains"):
        await within(link.receive())
    with pytest.raises(LinkLost, match="the host drains"):
        await link.send(run(), b"rows")


async def test_a_last_order_before_the_gateway_leaves_is_heard(site: Site) -> None:
    link = await site.started()
    await link.send(Shutdown())
    await link.close("done")
    assert await within(site.server.receive()) == ("s1", Shutdown(), b"")
    assert "done" in await ended_reason(site)


async def test_a_closed_server_says_so(site: Site) -> None:
    await site.server.close("test")
    with pytest.raises(LinkLost, match="server is closed"):
        await within(site.server.receive())


async def test_sessions_that_nobody_asked_for_are_not_kept(site: Site) -> None:
    for number in range(5):
        await site.link(f"s{number}")
        await until(lambda: site.server.connection_count == 2)
    assert await within(site.server.receive()) == ("s4", SessionStarted("s4"), b"")


class BeatlessClock(SystemClock):
    """A clock on which the gateway's second heartbeat is never due."""

    async def sleep_until(self, _: float) -> None:
        await asyncio.Event().wait()


async def test_the_host_ends_the_session_of_a_gateway_that_is_silent(authority: Authority) -> None:
    clock = SystemClock()
    async with new_site(authority, enrolled=True, timeout_s=0.4) as site:
        site.clock = BeatlessClock()
        link = await site.started()
        assert "no heartbeat from the gateway" in await ended_reason(site)
        assert "no heartbeat from the gateway" in await lost_reason(link)
        left_s = site.server.last_gateway_s
        await until(lambda: clock.now() > left_s + 0.05)
        assert site.server.last_gateway_s == left_s


async def test_a_connected_gateway_is_here_now(site: Site) -> None:
    began_s = site.server.last_gateway_s
    await site.started()
    now_s = site.clock.now()
    assert began_s < now_s <= site.server.last_gateway_s


async def test_round_trip_load_and_bytes_are_measured(site: Site) -> None:
    link = await site.started()
    await link.send(run(), MEGABYTE)
    await within(site.server.receive())
    await until(lambda: link.stats.rtt_s is not None)
    assert 0 < (link.stats.rtt_s or 0) < 5
    assert link.stats.rss_bytes > 1 << 20
    assert link.stats.load1 >= 0
    assert len(MEGABYTE) < link.stats.sent_bytes < len(MEGABYTE) + 100_000
    assert site.server.pair is not None
    assert site.server.pair.data.received_bytes == link.pair.data.sent_bytes
    await until(lambda: link.stats.goodput_bytes_per_s is not None)
    assert link.stats.loss is None or 0 <= link.stats.loss < 1


@asynccontextmanager
async def host_process(
    authority: Authority, tmp_path: Path
) -> AsyncIterator[tuple[asyncio.subprocess.Process, HostLink]]:
    user_data = UserData(host=HOST, ca_pem=authority.ca_pem, token=new_token())
    (tmp_path / "user-data.json").write_text(user_data.to_json())
    script = Path(__file__).parent / "host_process.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(tmp_path / "user-data.json"), str(tmp_path / "host"), stdout=-1
    )
    link = None
    try:
        assert process.stdout is not None
        address = ("127.0.0.1", int(await within(process.stdout.readline())))
        await enrol(address, authority, HOST, user_data.token, DEADLINE_S)
        link = await HostLink.connect(
            address, authority, HOST, "s", clock=SystemClock(), heartbeat_s=0.05, heartbeat_timeout_s=5.0
        )
        await link.send(run(), b"rows")
        assert await within(link.receive()) == (completed(), b"rows")
        yield process, link
    finally:
        if process.returncode is None:
            process.kill()
        if link is not None:
            await link.close("test over")
        await process.communicate()


async def test_a_killed_host_is_noticed_at_once(authority: Authority, tmp_path: Path) -> None:
    async with host_process(authority, tmp_path) as (process, link):
        process.kill()
        assert "connection" in await lost_reason(link)


async def test_a_stopped_host_is_noticed_by_its_silence(authority: Authority, tmp_path: Path) -> None:
    async with host_process(authority, tmp_path) as (process, link):
        process.send_signal(signal.SIGSTOP)
        assert "no heartbeat from cloud-1 for 5 s" in await lost_reason(link)
