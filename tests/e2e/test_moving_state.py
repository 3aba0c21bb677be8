"""A stateful query moves to a VM with its state and back; its VM and its gateway are killed; no result changes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import EAGER, Gateway, end_hosts, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SLICE = 240
SCHEMA = "id BIGINT, name STRING, at TIMESTAMP"
COUNTING = """\
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor


class Count(StatefulProcessor):
    def init(self, handle):
        self._held = handle.getValueState("n", "n BIGINT")

    def handleInputRows(self, key, rows, timerValues):
        n = self._held.get()[0] if self._held.exists() else 0
        for row in sorted(rows, key=lambda row: row["id"]):
            n += 1
            yield Row(id=row["id"], name=key[0], n=n)
        self._held.update((n,))

    def close(self):
        pass


def count(events):
    return events.groupBy("name").transformWithState(
        statefulProcessor=Count(), outputStructType="id BIGINT, name STRING, n BIGINT", outputMode="append",
        timeMode="None",
    )
"""


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_dir, self.events = folder / "state", folder / "events"
        for each in (self.state_dir, self.events):
            each.mkdir()
        (folder / "counting.py").write_text(COUNTING)
        query = {
            "function": "counting:count",
            "source": {"type": "file", "path": str(self.events), "follow": True},
            "schema": SCHEMA,
            "runs": {"max_events": 60},
            "sink": {"type": "file", "path": str(folder / "out" / "counts")},
            "qos": {"latency": "1s"},
            "switching": {**EAGER, "mode": "query"},
            "policy": {"type": "static", "vms": 1},
        }
        spark = {"master": "local[1]", "conf": {"spark.sql.shuffle.partitions": 2}}
        self.gateway = Gateway(folder, self.state_dir, {"counts": query}, {"billing": BILLING}, spark=spark)
        self.written: list[dict[str, Any]] = []

    def write(self) -> None:
        """Let a file with the next slice of events appear as a whole."""
        ids = range(len(self.written), len(self.written) + SLICE)
        slice_ = [{"id": i, "name": f"n{i % 7}", "at": f"2026-01-01T00:{i // 240:02}:{i // 4 % 60:02}Z"} for i in ids]
        new = self.folder / "new.jsonl"
        new.write_text("".join(json.dumps(event) + "\n" for event in slice_))
        new.rename(self.events / f"{ids.start:06}.jsonl")
        self.written += slice_

    def write_until(self, condition: Callable[[], bool], what: str) -> None:
        """Write a slice each second until a condition holds: a query without events has no latency, and stays."""
        next_s = time.monotonic()

        def holds() -> bool:
            nonlocal next_s
            if time.monotonic() >= next_s:
                self.write()
                next_s = time.monotonic() + 1
            return condition()

        until(holds, what)

    def counted(self) -> bool:
        return len(self.gateway.rows("counts")) == len(self.written)

    def moves(self, left: str) -> int:
        """Return how often the query left a place."""
        return self.gateway.log.read_text().count(f"query counts moved from {left} ")


BILLING = {"period": "10s", "minimum": "10s", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    if site.gateway.process is not None and site.gateway.process.poll() is None:
        site.gateway.kill()
    end_hosts(site.state_dir)


def expected(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    seen: Counter[str] = Counter()
    found = []
    for event in events:
        seen[event["name"]] += 1
        found.append({"id": event["id"], "name": event["name"], "n": seen[event["name"]]})
    return found


def test_a_query_with_state_goes_to_a_vm_and_returns_whatever_is_killed(site: Site) -> None:
    gateway = site.gateway
    gateway.start()
    site.write_until(lambda: site.moves("home") == 1, "the query is on a VM")
    site.write()
    until(site.counted, "the VM has counted all")
    until(lambda: site.moves("vm-") == 1, "without events it is at home again")

    site.write_until(lambda: site.moves("home") == 2, "the query is on a VM")
    (vm,) = gateway.vm_pids()
    os.kill(vm, signal.SIGKILL)
    site.write_until(lambda: site.moves("home") == 3, "it is on the next VM")
    gateway.kill()
    site.write()
    gateway.start()
    site.write_until(lambda: site.moves("home") == 4, "the next gateway moves it again")
    site.write()
    until(site.counted, "all slices are counted")
    gateway.kill(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.tail()
    assert sorted(gateway.rows("counts"), key=lambda row: row["id"]) == expected(site.written)
