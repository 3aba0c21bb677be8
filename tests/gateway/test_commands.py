"""The commands of an operator, with a running daemon whose hosts and query are doubles."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rich.console import Console

from gateway.views.terminal import overview, size
from tests.connectors.ports import free_port
from tests.gateway.daemon_site import Site, no_texts
from tests.gateway.terminal import Terminal
from tests.support.waiting import until

__all__ = ["no_texts"]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, port=free_port())


@pytest.fixture
async def terminal(tmp_path: Path, site: Site) -> AsyncIterator[Terminal]:
    running = asyncio.create_task(site.daemon.run(False, None))
    await until(lambda: running.done() or site.daemon.phase == "running")
    yield Terminal(tmp_path)
    site.query.idle = True
    site.daemon.parts.drain()
    assert await running == 0


async def test_status_is_a_table_of_queries_and_money(terminal: Terminal) -> None:
    shown = await terminal.done("status")
    assert shown.startswith("running, 1 queries, 0 of 1 VMs\n")
    assert "no VM" in shown
    assert "spent today: 0.0000 USD of 5 USD" in shown
    above, heads, row = (line.split() for line in shown.splitlines()[1:4])
    assert above == ["to", "out", "of", "dead"]
    assert heads == ["query", "state", "L", "promised", "VMs", "events", "results", "order", "letters", "sent"]
    assert row[:2] == ["words", "running"]
    assert (await terminal.done("status", "--json")).startswith("{\n")


async def test_an_operator_overrules_the_gateway(terminal: Terminal, site: Site) -> None:
    assert "words" in await terminal.done("pin", "words", "home", "--for", "30m")
    assert site.daemon.parts.scheduler.pins["words"].share == 0.0
    assert "(pinned until" in await terminal.done("status")
    await terminal.done("unpin", "words")
    assert not site.daemon.parts.scheduler.pins
    await terminal.done("pin", "words", "30%")
    assert site.daemon.parts.scheduler.pins["words"].share == pytest.approx(0.3)
    await terminal.done("pause", "--for", "10m")
    assert "decisions are paused until" in await terminal.done("status")
    await terminal.done("resume")
    assert site.daemon.parts.scheduler.paused_until_s is None
    await terminal.done("drain")
    assert not site.daemon.parts.drain(), "that has begun"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("pin", "wrods", "home"), 2, 'has no query "wrods"; its queries are words'),
        (("pin", "words", "half"), 2, "is not a share"),
        (("pin", "words", "home", "--for", "300d"), 1, 'for: "300d" is not a duration'),
        (("pin", "words", "home", "--for", "169h"), 1, "for: "),
        (("stop-vm", "vm-9"), 1, "vm-9"),
        (("restart", "words"), 1, "words"),
        (("top",), 1, "needs a terminal"),
    ],
)
async def test_what_is_refused_says_why(terminal: Terminal, words: tuple[str, ...], code: int, says: str) -> None:
    result = await terminal.said(*words)
    assert (result.exit_code, says in result.output) == (code, True), result.output


@pytest.mark.parametrize("words", [("status",), ("pin", "words", "home"), ("reload",), ("drain",)])
async def test_another_gateway_at_the_same_address_is_neither_shown_nor_steered(
    terminal: Terminal, tmp_path: Path, words: tuple[str, ...]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(terminal.config.read_text().replace("state_dir: state", "state_dir: elsewhere"))
    result = await terminal.said(*words, config=other)
    assert result.exit_code == 1
    assert f"is another one: its state_dir is {tmp_path / 'state'}, not {tmp_path / 'elsewhere'}" in result.output


def test_vms_troubles_and_decisions_are_shown_when_there_are_some() -> None:
    vm = {
        "name": "vm-1",
        "state": "sending",
        "period_until": "2026-11-25T10:30:00.000+00:00",
        "queries": ["words"],
        "used_s": 12.0,
        "billed_s": 60.0,
        "sent_bytes": 5_160_000,
        "received_bytes": 999,
        "usd": 0.0017,
    }
    query = {
        "name": "words",
        "state": "failed",
        "latency_s": 3.0,
        "thresholds": {"qos_latency_s": 2.0},
        "pin": None,
        "share_to_cloud": 0.5,
        "events": 2000,
        "results": 10,
        "out_of_order_events": 100,
        "dead_letters": 7,
        "sent_bytes": 0,
        "reason": "the sink is full",
        "trouble": "",
    }
    costs = {
        "usd_per_day": None,
        "spent_today_usd": 0.5,
        "reserved_usd": 0.25,
        "limit_reached": "the budget of a day",
        "limit_reached_in_s": 90.0,
        "trouble": "",
        "quota": {"vms": 1, "usd_today": 0.3, "why": "all 20 VMs are in use"},
    }
    status = {"phase": "running", "queries": {"words": "failed"}, "vms": {"vm-1": "sending"}, "max_vms": 2}
    status |= {"paused": False, "trouble": ""}
    status |= {"boots_seen": 3, "boot_expected_s": 62.04, "boot_configured_s": 15.0}
    decision = {"at": "2026-11-25T10:29:00.000+00:00", "query": "words", "verdict": "Launch a VM.", "done": ["vm-1"]}
    console = Console(width=200, file=io.StringIO(), record=True)
    answers = {"status": status, "queries": {"queries": [query]}, "vms": {"vms": [vm]}, "costs": costs}
    console.print(overview(answers | {"decisions": {"decisions": [decision]}}))
    text = console.export_text()
    words = " ".join(text.split())
    assert "vm-1 sending 10:30:00 UTC words 12 of 60 s 5.2 MB 999 B 0.0017 USD" in words
    assert "1 of 2 VMs; a VM is expected to boot in 62 s (boot says 15 s)" in words
    assert "words failed 3.00 s 2 s 50% 2,000 10 5.0% 7 0 B" in words
    assert "the budget of a day is reached in 90 s" in words
    assert "of the quota: 1 VMs and 0.3000 USD today; all 20 VMs are in use" in words
    assert "words: the sink is full" in words
    assert "10:29:00 UTC words Launch a VM.; vm-1" in words


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (5e15, "5000.0 TB")])
def test_sizes_have_units(count: float, text: str) -> None:
    assert size(count) == text
