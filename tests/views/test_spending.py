"""What VMs cost and what of it was used, from event logs: the ledger's books are the oracle for the sum."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import main
from gateway.core.decide.scheduler import SchedulerSettings
from gateway.simulate.eventlogs import LoggedScheduler
from gateway.simulate.runs.world import World
from gateway.views.why.eventlog import EventLog, LoggedEvent, all_logged
from gateway.views.why.plainjson import dumps
from gateway.views.why.spending import Spending, summed, told_spending
from policies.money.billing import BillingTerms, Traffic
from policies.signals import HOME, Command, Event, QuerySlot, SlotEnded, VmGone, VmReady
from tests.policies.policy_data import query_settings, scheduler_settings
from tests.worlds.drawing import drawn

TERMS = BillingTerms(60.0, 60.0, 3.6, 0.5)
"""A second costs 0.001 USD."""
BEGAN_S = 1_700_000_000.0


def settings() -> SchedulerSettings:
    return scheduler_settings(query_settings(), billing=TERMS, slot_s=1.0)


def steps(*events: Event) -> list[LoggedEvent]:
    return [LoggedEvent(event, ()) for event in events]


def slot(at_s: float, latency_s: float = 0.5, **busy_s: float) -> SlotEnded:
    query = QuerySlot(query="q", latency_s=latency_s, busy_s={HOME: 0.2, **busy_s})
    return SlotEnded(event_id="e", at_s=at_s, queries=(query,), wall_s=BEGAN_S + at_s)


def test_each_second_of_a_vm_is_one_of_the_uses() -> None:
    """It boots for 10 s, works for half of the next 20 s, idles for the others, and lives for 25 s of a minute."""
    events: list[Event] = [slot(0.0), VmReady(event_id="e", vm="vm", billing_since_s=0.0, at_s=10.0)]
    events += [slot(float(at), latency_s=5.0 if at < 15 else 0.5, vm=0.5) for at in range(11, 31)]
    gone = VmGone(event_id="e", vm="vm", at_s=35.0, traffic=Traffic(sent_bytes=10**9))
    found = summed(settings(), steps(*events, gone), 0.0)
    assert found.usd == pytest.approx({"booted": 0.01, "worked": 0.01, "idle": 0.015, "left": 0.025, "traffic": 0.5})
    assert found.launched == 0  # its order is not in this log
    (of,) = found.queries.values()
    assert (of.over_s, of.seen_s) == (pytest.approx(14.0), pytest.approx(31.0))
    lines = list(told_spending(found))
    assert lines[0].startswith("2023-11-14 22:13:20 to 2023-11-14 22:13:55 UTC: 0 VMs launched")
    assert lines[-1].startswith("q: above its target of ")
    assert "for 0.2 of 0.5 minutes" in lines[-1]


def test_what_was_before_is_not_counted() -> None:
    events = [slot(float(at), latency_s=5.0) for at in range(100)]
    (of,) = summed(settings(), steps(*events), BEGAN_S + 90.0).queries.values()
    assert (of.over_s, of.seen_s) == (pytest.approx(10.0), pytest.approx(10.0))
    assert list(told_spending(Spending())) == ["nothing is known of that time"]


@pytest.mark.parametrize("seed", range(1, 25))
def test_the_sum_is_that_of_the_ledger(seed: int) -> None:
    """Worlds with launches that fail, VMs that are lost and VMs that hang."""
    options = drawn(seed)
    logged: list[LoggedEvent] = []

    def note(event: Event, commands: Sequence[Command]) -> None:
        logged.append(LoggedEvent(event, tuple(map(dumps, commands))))

    usd = World(options, make_scheduler=lambda settings: LoggedScheduler(settings, note)).run().usd
    found = summed(options.scheduler, logged, 0.0)
    assert sum(found.usd.values()) == pytest.approx(usd, rel=1e-6, abs=1e-9)
    assert found.usd["worked"] >= 0
    assert all(part >= -1e-9 for part in found.usd.values())


async def test_the_command_tells_it_without_a_gateway(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").touch()
    config = tmp_path / "words.yaml"
    config.write_text(
        "gateway: {state_dir: state}\nqueries:\n  q:\n    source: {type: file, path: in.jsonl}\n    schema: id STRING\n"
        "    sql: SELECT id FROM events\n    sink: {type: file, path: out}\n    qos: {latency: 2s}\n"
    )

    def why(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["why", str(config), *arguments])
        return result.exit_code, result.output

    assert why("--summary") == (0, "nothing is known of that time\n")
    for gateway in range(2):
        log = EventLog(tmp_path / "state" / "events", replace(settings(), slot_s=2.0))
        for at in range(5):
            log.note(slot(100.0 * gateway + 2 * at, latency_s=5.0), [])
        await log.close()
    code, said = why("--summary")
    assert code == 0
    assert "q: above its target of " in said
    assert "for 0.3 of 0.3 minutes (100.0%)" in said
    assert len(list(all_logged(tmp_path / "state" / "events"))) == 12
    assert why("--summary", "--since", "1h") == (0, "nothing is known of that time\n")
    assert why("--summary", "--since", "noon")[0] == 2
    assert why("--since", "1h")[0] == 2
    assert why("q", "--summary")[0] == 2
    (tmp_path / "state" / "events" / "00000009.jsonl").write_text(json.dumps({"query": "q"}) + "\n")
    code, said = why("--summary")
    assert (code, "line 1, cannot be read" in said.replace("\n", " ")) == (2, True)
