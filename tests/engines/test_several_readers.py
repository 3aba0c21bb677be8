"""A join of events with events has two readers. Spark asks one after the other where a micro-batch ends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.engines.stream_bench import Bench

pytestmark = pytest.mark.spark

RUNS = 8
# A poll of a reader without runs ends after half a second. So these runs arrive while the one or the other waits.
PAUSES_S = tuple(0.13 * number for number in range(RUNS))
SCHEMA = "id BIGINT, name STRING"


def rows(number: int) -> list[dict[str, object]]:
    return [{"id": 10 * number + each, "name": f"n{each}"} for each in range(1, 4)]


def test_events_meet_themselves_whenever_a_run_arrives(bench: Bench, tmp_path: Path) -> None:
    sql = "SELECT a.id, b.id AS other FROM events a JOIN events b ON a.name = b.name"
    running = bench.open(sql, schema=SCHEMA, checkpoint_dir=str(tmp_path))
    for number, pause_s in enumerate(PAUSES_S):
        threading.Event().wait(pause_s)
        running.put_seqs(3 * number, rows(number))
        found = running.rows_until(3 * (number + 1))
    everything = [row for number in range(RUNS) for row in rows(number)]
    wanted = [(a["id"], b["id"]) for a in everything for b in everything if a["name"] == b["name"]]
    assert sorted((row["id"], row["other"]) for row in found) == sorted(wanted)
    assert running.limits()[-1][1] == 3 * RUNS
