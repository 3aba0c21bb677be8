"""Totals that change reach a compacted topic and snapshots in files, and late events the dead letters; under kills."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import signal
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_sinks import records
from tests.e2e.harness import EAGER, Gateway

EVENTS = 2000
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TOTALS = "SELECT customer, sum(amount) AS total, count(*) AS n FROM events GROUP BY customer"


def events() -> list[dict[str, Any]]:
    """Ten events for each second of event time; after a while some come 20 or 90 s too late."""
    found = []
    for number in range(EVENTS):
        at_s = number / 10 - (0 if number < 1000 or number % 20 else 20 if number % 40 else 90)
        at = (BEGIN + dt.timedelta(seconds=at_s)).isoformat(timespec="milliseconds")
        customer = f"c{number % 13}" if number % 13 else None  # NULL is a group like any other
        found.append({"customer": customer, "amount": 1 + number % 7, "at": at})
    return found


def query(folder: Path, sql: str, sink: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "source": {"type": "file", "path": str(folder / "in.jsonl"), "replay": {"rate": "300/s"}},
        "schema": "customer STRING, amount INT, at TIMESTAMP",
        "sql": sql,
        "sink": sink,
        "qos": {"latency": "1s"},
        **more,
    }


def totals_after(count: int) -> dict[str | None, tuple[int, int]]:
    """Return each customer's total and number of events after so many of them."""
    found = defaultdict[str | None, tuple[int, int]](lambda: (0, 0))
    for event in events()[:count]:
        total, n = found[event["customer"]]
        found[event["customer"]] = (total + event["amount"], n + 1)
    return dict(found)


def check_topic(broker: Broker, topic: str) -> None:
    """Each key has its totals in order, once, up to the last one."""
    found = defaultdict[str | None, list[tuple[int, int]]](list)
    for record in asyncio.run(records(broker, topic)):
        row = json.loads(record.value or b"")
        assert json.loads(record.key or b"") == {"customer": row["customer"]}
        found[row["customer"]].append((row["n"], row["total"]))
    sums = defaultdict[str | None, list[int]](lambda: [0])
    for event in events():
        sums[event["customer"]].append(sums[event["customer"]][-1] + event["amount"])
    for customer, rows in found.items():
        numbers = [n for n, _ in rows]
        assert numbers == sorted(set(numbers)), f"{customer}: a row came again, or out of order"
        assert [total for _, total in rows] == [sums[customer][n] for n in numbers]
    assert {customer: rows[-1][::-1] for customer, rows in found.items()} == totals_after(EVENTS)


def check_snapshots(folder: Path) -> None:
    """Each snapshot is the table after the events that it says it takes into account."""
    rows = [row for part in sorted(folder.glob("[0-9]*.parquet")) for row in pq.read_table(part).to_pylist()]
    seqs = [row["_seq"] for row in rows if row["_op"] == "S"]
    assert seqs == sorted(set(seqs))
    assert seqs[-1] == EVENTS - 1
    for seq in seqs:
        snapshot = [row for row in rows if row["_seq"] == seq]
        assert [row["_op"] for row in snapshot] == ["S"] + ["U"] * (len(snapshot) - 1)
        assert {row["customer"]: (row["total"], row["n"]) for row in snapshot[1:]} == totals_after(seq + 1)


def check_late(results: list[dict[str, Any]], letters: list[dict[str, Any]]) -> None:
    """Each event of a window that was emitted has counted, or is a dead letter."""
    of_event = [int((dt.datetime.fromisoformat(event["at"]) - BEGIN).total_seconds()) // 10 * 10 for event in events()]
    came, late = Counter(of_event), Counter(of_event[letter["seq"]] for letter in letters)
    counted = {round((dt.datetime.fromisoformat(row["s"]) - BEGIN).total_seconds()): row["n"] for row in results}
    assert len(counted) == len(results)
    assert counted == {window: came[window] - late[window] for window in counted}
    assert set(late) <= set(counted)
    seqs = [letter["seq"] for letter in letters]
    assert len(seqs) == len(set(seqs)) >= 5
    assert all(json.loads(letter["raw"])["customer"] == events()[letter["seq"]]["customer"] for letter in letters)
    assert all(letter["reason"].startswith("it came too late: everything up to 2026-01-01T") for letter in letters)


def test_whatever_is_killed_the_last_rows_are_right(
    tmp_path: Path, state_dir: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events()))
    topic = asyncio.run(broker.create_topic(settings={"cleanup.policy": "compact"}))
    kafka = {"type": "kafka", "brokers": broker.brokers, "topic": topic}
    parquet = {"type": "file", "path": str(tmp_path / "out" / "snapshots"), "format": "parquet"}
    windows = "SELECT window.start AS s, count(*) AS n FROM events GROUP BY window(at, '10 seconds')"
    queries = {
        "updated": query(tmp_path, TOTALS, kafka, output={"mode": "update", "key": ["customer"]}, switching=EAGER),
        "snapshots": query(tmp_path, TOTALS, parquet, output={"mode": "complete"}, switching={"mode": "off"}),
        "windows": query(
            tmp_path,
            windows,
            {"type": "file", "path": str(tmp_path / "out" / "windows")},
            event_time={"column": "at", "lateness": "1s", "late": "dead-letters"},
            switching={"mode": "off"},
        ),
    }
    gateway = Gateway(tmp_path, state_dir, queries)
    monkeypatch.setenv("SPILLWAY_FAILPOINTS", "deadletters.append.after=kill@1")
    gateway.start("--until-drained")
    assert gateway.wait() == -signal.SIGKILL, gateway.tail()
    monkeypatch.delenv("SPILLWAY_FAILPOINTS")
    gateway.run_until_drained()
    check_topic(broker, topic)
    check_snapshots(tmp_path / "out" / "snapshots")
    letters = (state_dir / "queries" / "windows" / "dead-letters.jsonl").read_text().splitlines()
    check_late(gateway.rows("windows"), [json.loads(letter) for letter in letters])
