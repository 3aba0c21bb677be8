"""Both ends over real TLS."""

from __future__ import annotations

from infra.link.server import SessionEnded, SessionStarted
from infra.messages import Credit, HostReady
from tests.link.link_site import HOST, RUNTIME, Site, completed, lost_reason, run, within


async def test_messages_and_payloads_go_both_ways(site: Site) -> None:
    link = await site.started()
    assert (link.hello.host, link.hello.session, link.hello.runtime) == (HOST, "s1", RUNTIME)
    payload = bytes(range(256)) * 8192
    await link.send(run(), payload)
    assert await within(site.server.receive()) == ("s1", run(), payload)
    assert await site.server.send("s1", completed(), payload)
    assert await within(link.receive()) == (completed(), payload)
    assert await site.server.send("s1", Credit(query="q", epoch=1, bytes=len(payload)))
    assert await within(link.receive()) == (Credit(query="q", epoch=1, bytes=len(payload)), b"")


async def test_a_new_host_enrols_and_is_then_linked(new_host: Site) -> None:
    await new_host.enrol()
    link = await new_host.started()
    await link.send(run(), b"rows")
    assert await within(new_host.server.receive()) == ("s1", run(), b"rows")


async def test_readiness_is_in_the_hello_or_sent_later(site: Site) -> None:
    early = await site.started("early")
    assert not early.hello.ready
    await site.server.mark_ready(14.5)
    assert await within(early.receive()) == (HostReady(boot_s=14.5), b"")
    late = await site.link("late")
    assert late.hello.ready


async def test_a_closed_link_ends_the_session(site: Site) -> None:
    link = await site.started()
    await link.close("the gateway drains")
    session, event, _ = await within(site.server.receive())
    assert session == "s1"
    assert isinstance(event, SessionEnded)
    assert "the gateway drains" in event.reason
    assert not await site.server.send("s1", completed())


async def test_an_older_session_is_replaced(site: Site) -> None:
    older = await site.started("older")
    newer = await site.link("newer")
    session, event, _ = await within(site.server.receive())
    assert (session, type(event)) == ("older", SessionEnded)
    assert await within(site.server.receive()) == ("newer", SessionStarted("newer"), b"")
    assert "replaced by session newer" in await lost_reason(older)
    assert not await site.server.send("older", completed())
    assert await site.server.send("newer", completed())
    assert await within(newer.receive()) == (completed(), b"")
