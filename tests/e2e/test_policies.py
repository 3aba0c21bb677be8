"""Real Spark under a policy that plans: it launches the VM, the results stay exact, and the ledger gives the reason.

The query sleeps for each event, so that an engine serves the same rate on any machine. ``start_vm_above`` is too high
to be reached, so equation 1 launches no VM. ``send_above`` is low enough that a VM is used.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.harness import Gateway, until

FUNCTION = """\
import time

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType


def work(text):
    time.sleep(EVENT_S)
    return len(text)


def transform(events):
    return events.select("id", F.udf(work, IntegerType())("text").alias("length"))
"""
ONLY_AHEAD = {"start_vm_above": "10m", "send_above": "100ms", "keep_vm_above": "50ms", "tolerance": "0s"}
# Far more than a planner needs to learn them on a quiet machine: the gateway is stopped as soon as it has acted.
CYCLES = 40
ACTS_WITHIN_S = 480.0
# A burst is 1.6 times what one engine serves, in few and large runs: a busy machine has caught up before the next.
BURSTS = [{"rate": "4/s", "for": "9s"}, {"rate": "80/s", "for": "3s"}]


def events(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": "x" * (number % 17)} for number in range(count)]


def make(
    folder: Path,
    state_dir: Path,
    name: str,
    count: int,
    replay: dict[str, Any],
    policy: dict[str, Any],
    *,
    event_s: float,
    linger: str = "100ms",
) -> Gateway:
    """Return a gateway, not started; each of its events takes so long."""
    (folder / "slow.py").write_text(FUNCTION.replace("EVENT_S", str(event_s)))
    (folder / "in.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(events(count)))
    query = {
        "source": {"type": "file", "path": str(folder / "in.jsonl"), "replay": replay},
        "schema": "id BIGINT, text STRING",
        "function": "slow:transform",
        "sink": {"type": "file", "path": str(folder / "out" / name)},
        "qos": {"latency": "1s"},
        "switching": ONLY_AHEAD,
        "policy": policy,
        "runs": {"linger": linger},
    }
    return Gateway(folder, state_dir, {name: query})


def assert_exact(gateway: Gateway, name: str, count: int) -> None:
    """Check that the first ``count`` events were answered once each, in order, and that no VM is left."""
    assert gateway.rows(name) == [{"id": event["id"], "length": len(event["text"])} for event in events(count)]
    assert gateway.vm_pids() == []


def ledger(state_dir: Path, query: str) -> list[dict[str, Any]]:
    files = sorted((state_dir / "decisions").glob("*.jsonl"))
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return [line for line in lines if line["query"] == query]


def starts(lines: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Return the lines in which a VM was launched, each with its reason."""
    return [(line, action["why"]) for line in lines for action in line["actions"] if action["what"] == "StartVm"]


def told(gateway: Gateway, query: str, at: str) -> str:
    command = [sys.executable, "-m", "gateway", "why", str(gateway.config), query, "--at", at]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout


def assert_replays(state_dir: Path) -> None:
    """Check that a scheduler with this gateway's events returns the same commands, including the launch of the VM."""
    log = max((state_dir / "events").glob("*.jsonl"))  # each start of a gateway begins a file
    lines = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    commands = [command["$"] for line in lines for command in line["commands"]]
    assert {"Ask", "StartVm", "SetRoute", "TerminateVm"} <= set(commands)
    assert {"LedgerRestored", "SlotEnded", "SlotAnswered", "VmReady", "VmGone"} <= {
        line["event"]["$"] for line in lines
    }
    command = [sys.executable, "-m", "gateway", "why", "--replay", str(log)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert said.stdout == f"{len(lines)} events, {len(commands)} commands: the same\n", said.stderr
    assert said.returncode == 0


@pytest.mark.timeout(1200)
def test_a_planner_starts_the_vm_for_bursts_that_it_has_learned(tmp_path: Path, state_dir: Path) -> None:
    count = CYCLES * (9 * 4 + 3 * 80)
    steps = [step for _ in range(CYCLES) for step in BURSTS]
    policy = {"type": "planner", "cycles": ["12s"], "horizon": "16s"}
    gateway = make(tmp_path, state_dir, "planned", count, {"profile": steps}, policy, event_s=0.02, linger="500ms")
    gateway.start()
    try:
        until(lambda: bool(starts(ledger(state_dir, "planned"))), "the planner starts a VM", ACTS_WITHIN_S)
        until(lambda: bool(gateway.vm_pids()), "the VM runs")
    except AssertionError as error:
        error.add_note("\n".join(line["why"] for line in ledger(state_dir, "planned")[-40:]))
        error.add_note(gateway.tail())
        raise
    finally:
        gateway.kill(signal.SIGTERM)
        code = gateway.wait()
    assert code == 0, gateway.tail()
    totals, lines = gateway.totals(), ledger(state_dir, "planned")
    assert_exact(gateway, "planned", totals["events"])
    assert totals["vms"]["started"] == totals["vms"]["stopped"] >= 1
    found = starts(lines)
    assert all(why.startswith("planned: planner: ") for _, why in found)
    line, _ = found[0]
    assert line["forecast"]["low"] <= line["forecast"]["rate"] <= line["forecast"]["high"]
    assert {option["vms"] for option in line["options"]} == {0, 1}
    before = " ".join(line["why"] for line in lines if line["forecast"] is None)
    assert "of 24 windows were seen before the first training" in before
    text = told(gateway, "planned", line["at"])
    assert "Policy planner: planner: 1 VMs" in text
    assert "Forecast: " in text
    assert "Done: StartVm" in text


def test_queueing_starts_the_vm_that_keeps_its_buffer_limit(tmp_path: Path, state_dir: Path) -> None:
    policy = {"type": "queueing", "buffer_limit": 50}
    gateway = make(tmp_path, state_dir, "queued", 9000, {"rate": "450/s"}, policy, event_s=0.003)
    gateway.run_until_drained()
    assert_exact(gateway, "queued", 9000)
    assert gateway.totals()["vms"]["started"] >= 1
    found = starts(ledger(state_dir, "queued"))
    assert found, gateway.tail()
    line, why = found[0]
    assert why.startswith("queued: queueing: 1 VMs")
    assert "hold at most 50 events" in why
    assert "because queued: queueing: 1 VMs" in told(gateway, "queued", line["at"])
    assert_replays(state_dir)
