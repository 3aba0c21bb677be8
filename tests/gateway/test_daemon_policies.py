"""A running daemon with each policy: VMs are launched, another process trains models, the ledger gives reasons."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway import daemon as daemon_module
from gateway.cli import main
from policies.signals import HOME, QuerySlot
from tests.gateway import daemon_site as parts
from tests.support.fleet_doubles import Dialler, MemoryCloud
from tests.support.waiting import until

TRAINED_WITHIN_S = 240.0
"""A process is started for it, on a machine that may be busy."""


def load_of(rates: list[float]) -> Any:
    """Return an ``end_slot`` that reports these rates in turn, and an engine that serves 1000 events a second."""
    turns = iter(range(10**9))

    def end_slot(*_: object, **__: object) -> tuple[QuerySlot, ...]:
        rate = rates[next(turns) % len(rates)]
        events = max(1, int(rate / 10))
        slot = QuerySlot(
            query="words",
            latency_s=0.1,
            input_rate=rate,
            input_bytes_per_s=100 * rate,
            rates={HOME: 1000.0},
            completed_events={HOME: events},
            batches={HOME: 1},
            busy_s={HOME: events / 1000.0},
        )
        return (slot,)

    return end_slot


@asynccontextmanager
async def running(
    folder: Path, monkeypatch: pytest.MonkeyPatch, policy: str, rates: list[float]
) -> AsyncIterator[parts.Site]:
    """Run a daemon with doubles under a policy; drain it at the end."""
    recorder = type("Recorder", (), dict.fromkeys(("slot", "note"), lambda *_: None))
    monkeypatch.setattr(daemon_module, "Recorder", lambda *_: recorder)
    monkeypatch.setattr(daemon_module, "tallies_texts", lambda _: [])
    written = policy.replace("{", "{{").replace("}", "}}")
    monkeypatch.setattr(parts, "CONFIG", f"{parts.CONFIG}    policy: {written}\n")
    cloud = MemoryCloud()
    site = parts.Site(folder, dial=Dialler(), cloud=cloud)
    site.profiler.end_slot = load_of(rates)
    task = asyncio.create_task(site.daemon.run(False, None))
    try:
        await until(lambda: task.done() or site.daemon.phase == "running")
        yield site
    finally:
        site.query.idle = True
        if not task.done():
            os.kill(os.getpid(), signal.SIGTERM)
        assert await task == 0
        assert cloud.nodes == {}
    (log,) = (folder / "state" / "events").iterdir()
    assert why("--replay", log).endswith(" commands: the same\n")


def ledger(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "state" / "decisions").glob("*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def why(*arguments: str | Path) -> str:
    result = CliRunner().invoke(main, ["why", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("{type: static, vms: 1}", "words: static: 1 VMs always"),
        ("{type: queueing, window: 200ms, ahead: 200ms}", "words: queueing: 1 VMs"),
        ("{type: cpu, window: 200ms}", "words: cpu: 1 VMs: CPU load"),
        ("{type: lookahead}", "words: lookahead: 1 VMs: 1,500 events/s come"),
        ("{type: auto}", "words: auto: follows "),
    ],
)
async def test_a_vm_is_started_for_a_policy_and_the_ledger_tells_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, says: str
) -> None:
    async with running(tmp_path, monkeypatch, policy, [1500.0]) as site:
        await until(lambda: "idle" in json.loads(site.seeing.status())["vms"].values())
        now = json.loads(site.seeing.why())["words"]
    assert now["wanted"] == 1
    started = [line for line in ledger(tmp_path) for action in line["actions"] if action["what"] == "StartVm"]
    assert len(started) == 1
    (action,) = started[0]["actions"]
    assert action["of"] == "vm-1"
    assert action["why"].startswith(says)
    told = why(tmp_path / "config.yaml", "words", "--at", started[0]["at"])
    assert f"Done: StartVm vm-1, because {says}" in told
    assert f"Policy {policy.split()[1].rstrip(',}')}" in told


def write_calendar(path: Path, begins: datetime) -> None:
    event = f"BEGIN:VEVENT\nUID:1\nDTSTART:{begins:%Y%m%dT%H%M%SZ}\nDURATION:PT20M\nEND:VEVENT"
    replacement = path.with_suffix(".new")
    replacement.write_text(f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//tests//EN\n{event}\nEND:VCALENDAR\n")
    replacement.replace(path)


async def test_a_calendar_is_followed_and_a_vm_is_there_for_its_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Home completes 1,000 events a second and 400 come; the calendar says four times as many."""
    matches = tmp_path / "matches.ics"
    write_calendar(matches, datetime.now(UTC) + timedelta(days=3))
    monkeypatch.setattr(parts, "CONFIG", parts.CONFIG.replace("gateway:\n", "gateway:\n  watch: true\n"))
    policy = "{type: reactive}\n    announced: [{name: matches, calendar: matches.ics, factor: 4}]"
    async with running(tmp_path, monkeypatch, policy, [400.0]) as site:
        await until(lambda: len(ledger(tmp_path)) > 5)
        assert json.loads(site.seeing.status())["vms"] == {}
        write_calendar(matches, datetime.now(UTC) + timedelta(seconds=20))
        await until(lambda: "idle" in json.loads(site.seeing.status())["vms"].values())
    (started,) = [action for line in ledger(tmp_path) for action in line["actions"] if action["what"] == "StartVm"]
    assert started["why"].startswith("words: announced: 1 VMs because of matches, which is announced for ")
    assert "with 1,600 events/s" in started["why"]


async def test_a_planners_models_are_trained_in_another_process_while_slots_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = "{type: planner, window: 100ms, horizon: 11s}"
    async with running(tmp_path, monkeypatch, policy, [400.0, 420.0, 380.0]) as site:
        lines: dict[str, Any] = {}

        def is_forecast() -> bool:
            lines.update(json.loads(site.seeing.why()))
            return lines.get("words", {}).get("forecast") is not None

        await until(is_forecast, what="the forecast of a trained model", deadline_s=TRAINED_WITHIN_S)
    line = lines["words"]
    assert line["policy"] == "planner"
    assert 300 < line["forecast"]["rate"] < 500
    assert line["forecast"]["low"] < line["forecast"]["rate"] < line["forecast"]["high"]
    assert "rate" in line["rules"]
    assert all("wanted" in line for line in ledger(tmp_path))


def test_why_refuses_what_it_cannot_answer(tmp_path: Path) -> None:
    parts.configured(tmp_path)
    config = str(tmp_path / "config.yaml")
    no_query = CliRunner().invoke(main, ["why", config, "wrods"])
    assert (no_query.exit_code, "its queries are words" in no_query.output) == (2, True)
    no_time = CliRunner().invoke(main, ["why", config, "--at", "noon"])
    assert (no_time.exit_code, "as in 10m" in no_time.output) == (2, True)
    assert "so long ago that is still known" in why(config, "words", "--at", "10m")
