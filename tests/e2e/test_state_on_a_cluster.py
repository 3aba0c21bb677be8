"""Stateful queries on a standalone cluster: their state is in a folder that all executors share."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Gateway, end_hosts, until
from tests.engines.spark_cluster import Cluster, cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SLICE = 60
# A driver and its executors start anew; on a busy machine that alone took two minutes.
LONG_S = 480.0
SCHEMA = "id BIGINT, name STRING, at TIMESTAMP"
COUNTING = """
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
WINDOWS = (
    "SELECT window.start AS start, name, count(*) AS n, sum(id) AS ids FROM events "
    "WATERMARK at DELAY OF INTERVAL 5 SECONDS GROUP BY window(at, '10 seconds'), name"
)


class Site:
    """A cluster of two workers of one core, which see the folder of the state, but not the gateway's; and events."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_dir, self.events, self.shared = folder / "state", folder / "events", folder / "shared"
        for each in (self.state_dir, self.events, self.shared):
            each.mkdir()
        self.spark: Cluster
        self.started: Gateway | None = None

    def gateway(self) -> Gateway:
        (self.folder / "counting.py").write_text(COUNTING)
        spark = {
            "master": self.spark.master,
            "checkpoints": str(self.shared),
            "conf": {"spark.sql.shuffle.partitions": 2, "spark.executor.memory": "600m"},
        }
        queries = {
            "counts": {"function": "counting:count", **self._query("counts")},
            "windows": {"sql": WINDOWS, **self._query("windows")},
        }
        self.started = Gateway(self.folder, self.state_dir, queries, {"max_vms": 0}, spark=spark)
        self.started.start()
        return self.started

    def _query(self, name: str) -> dict[str, Any]:
        return {
            "source": {"type": "file", "path": str(self.events), "follow": True},
            "schema": SCHEMA,
            "runs": {"max_events": 15},
            "sink": {"type": "file", "path": str(self.folder / "out" / name)},
            "qos": {"latency": "20s"},
        }

    def write(self, name: str, events: list[dict[str, Any]]) -> None:
        """Let a file of events appear as a whole."""
        new = self.folder / name
        new.write_text("".join(json.dumps(event) + "\n" for event in events))
        new.rename(self.events / name)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(tmp_path)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    with cluster(tmp_path / "spark", [site.state_dir], [site.state_dir], cores=1) as site.spark:
        yield site
        if site.started is not None:
            site.started.kill()
        end_hosts(site.state_dir)


def slice_of(number: int) -> list[dict[str, Any]]:
    ids = range(number * SLICE, (number + 1) * SLICE)
    return [{"id": i, "name": f"n{i % 7}", "at": f"2026-01-01T00:{i // 240:02}:{i // 4 % 60:02}Z"} for i in ids]


def expected_counts(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    seen: Counter[str] = Counter()
    found = []
    for event in events:
        seen[event["name"]] += 1
        found.append({"id": event["id"], "name": event["name"], "n": seen[event["name"]]})
    return found


def expected_windows(events: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[int, int]]:
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for event in events:
        key = (f"{event['at'][:18]}0", event["name"])
        n, ids = found.get(key, (0, 0))
        found[key] = n + 1, ids + event["id"]
    return found


def results(gateway: Gateway, query: str) -> list[dict[str, Any]]:
    """Return all but those of the events that close the windows."""
    return [row for row in gateway.rows(query) if row["name"] != "end"]


def is_counted(gateway: Gateway, row: dict[str, Any]) -> bool:
    return row in gateway.rows("counts")


def newest(starts: Path) -> Path:
    return starts / max((entry.name for entry in starts.iterdir() if entry.name.isdecimal()), key=int)


def in_a_batch(start: Path) -> bool:
    """Return whether Spark has planned a micro-batch that it has not committed."""
    last = [max((int(f.name) for f in (start / log).glob("[0-9]*")), default=-1) for log in ("offsets", "commits")]
    return last[0] > last[1]


def held_partitions(local: Path) -> set[str]:
    """Return the partitions of state that the executors of a worker have loaded."""
    return {path.name.partition("partId=")[2][:1] for path in local.rglob("StateStoreId(*")}


def test_a_killed_worker_and_a_killed_driver_change_no_result(site: Site) -> None:
    gateway = site.gateway()
    first, second = site.spark.workers
    site.write("0.jsonl", slice_of(0))
    until(lambda: len(results(gateway, "counts")) == SLICE, "the first slice is counted")
    assert held_partitions(first.local)
    assert held_partitions(second.local)
    (state,) = site.shared.glob("counts-*")

    site.write("1.jsonl", slice_of(1))
    until(lambda: in_a_batch(newest(state)), "a micro-batch is under way")
    first.kill()
    until(lambda: len(results(gateway, "counts")) == 2 * SLICE, "the second slice is counted")
    assert held_partitions(second.local) == {"0", "1"}

    site.write("2.jsonl", slice_of(2))
    until(lambda: in_a_batch(newest(state)), "a micro-batch is under way")
    os.kill(gateway.home_pid(), signal.SIGKILL)
    until(lambda: len(results(gateway, "counts")) == 3 * SLICE, "the third slice is counted", LONG_S)

    events = slice_of(0) + slice_of(1) + slice_of(2)
    wanted = expected_windows(events)
    for day in range(2, 10):
        # A micro-batch emits the windows that were closed by the one before it.
        site.write(f"end-{day}.jsonl", [{"id": day, "name": "end", "at": f"2026-01-{day:02}T00:00:00Z"}])
        until(partial(is_counted, gateway, {"id": day, "name": "end", "n": day - 1}), f"end {day} is counted")
        if len(results(gateway, "windows")) >= len(wanted):
            break
    gateway.kill(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.tail()

    assert sorted(results(gateway, "counts"), key=lambda row: row["id"]) == expected_counts(events)
    found = [((row["start"][:19], row["name"]), (row["n"], row["ids"])) for row in results(gateway, "windows")]
    assert len(found) == len(wanted), "no window came twice"
    assert dict(found) == wanted
