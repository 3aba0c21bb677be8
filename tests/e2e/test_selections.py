"""Selections over home and VMs: what the sequential operator gives, once and in order, whatever is killed."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.harness import EAGER, Gateway, until
from tests.selections.sequential import Event, Sequential

EVENTS, BAD = 3_000, (700, 1_501)
SQL = """
SELECT selection, sensor, count(*) AS events, min(number) AS first, sum(CAST(text AS BIGINT)) AS total
FROM events GROUP BY selection, sensor
"""


def readings() -> Iterator[dict[str, Any]]:
    """Readings of three sensors, 20 to 60 ms apart, a few of them late; two of them are no numbers."""
    chance, now_ms = random.Random(7), 1_700_000_000_000
    for number in range(EVENTS):
        now_ms += chance.randint(20, 60)
        late_ms = chance.choice((0, 0, 0, 0, 500))
        text = "?" if number in BAD else str(number % 97)
        at = datetime.fromtimestamp((now_ms - late_ms) / 1e3, UTC).isoformat(timespec="milliseconds")
        yield {"number": number, "at": at, "sensor": f"s{number % 3}", "text": text}


def query(folder: Path, name: str) -> dict[str, Any]:
    (folder / "readings.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in readings()))
    return {
        "source": {"type": "file", "path": str(folder / "readings.jsonl"), "replay": {"rate": "120/s"}},
        "schema": "number BIGINT, at TIMESTAMP, sensor STRING, text STRING",
        "selections": {"time": "at", "opens": {"every": "2s"}, "closes": {"after": "10s"}},
        "sql": SQL,
        "runs": {"max_events": 100},
        "sink": {"type": "file", "path": str(folder / "out" / name)},
        "qos": {"latency": "1s"},
        "switching": EAGER,
    }


def expected() -> list[dict[str, Any]]:
    """Return what the sequential operator gives, without the readings that are no numbers."""
    rows = list(readings())
    operator = Sequential(slide_ms=2_000, window_ms=10_000)
    events = [
        Event(round(datetime.fromisoformat(row["at"]).timestamp() * 1e3), matches=False, ends=False) for row in rows
    ]
    found = []
    for number, members, _ in operator.run(events):
        for sensor in ("s0", "s1", "s2"):
            mine = [rows[each] for each in members if rows[each]["sensor"] == sensor and each not in BAD]
            total = sum(int(row["text"]) for row in mine)
            first = mine[0]["number"]
            found.append({"selection": number, "sensor": sensor, "events": len(mine), "first": first, "total": total})
    return found


def _has_parts(gateway: Gateway, name: str, count: int) -> bool:
    return len(gateway.parts(name)) > count


def test_windows_are_exact_over_two_sites_whatever_is_killed(tmp_path: Path, state_dir: Path) -> None:
    name = "sliding-windows"
    gateway = Gateway(tmp_path, state_dir, {name: query(tmp_path, name)})
    gateway.start("--until-drained")
    until(lambda: "% to vm-" in gateway.log.read_text() and bool(gateway.vm_pids()), "events go to the VM")
    seen = len(gateway.parts(name))
    until(partial(_has_parts, gateway, name, seen + 1), "two more parts are there")
    os.kill(gateway.vm_pids()[0], signal.SIGKILL)
    seen = len(gateway.parts(name))
    until(partial(_has_parts, gateway, name, seen + 1), "two more parts are there")
    gateway.kill()
    gateway.run_until_drained()
    assert gateway.rows(name) == expected()
    letters = [
        json.loads(line) for line in (state_dir / "queries" / name / "dead-letters.jsonl").read_text().splitlines()
    ]
    assert sorted(letter["seq"] for letter in letters) == list(BAD)
    assert gateway.vm_pids() == []
