"""CEPSim's use case on real Spark: its readings, the cost of its micro-batches, and gateways that run it."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cepsim_query import SCHEMA_DDL, USUAL, WINDOW_S
from ruamel.yaml import YAML

from engines.query.known import KnownQuery, understand
from engines.spark.session import build_session, stop_session
from engines.stateful import StatefulStream
from engines.stateless import RunOutcome
from engines.streaming.answers import Reports
from engines.streaming.feed import FeedServer, pack
from gateway.config.configstate import CLAIM_NAME
from gateway.connectors.position import Position
from gateway.core.exchange.reorder import Released
from gateway.query.flow.run import BATCH_RUNS_MAX
from gateway.query.flow.runlog import LogHead, RunLog, RunRecord
from gateway.sinks.parts.filesink import FileSink, PartName
from infra.clock import SystemClock
from infra.messages import OpenQuery

READINGS_PER_S = 10.0
SELECTIVITY = 0.95
BASE_US = 1_767_225_600_000_000
"""Event time of the first reading, 2026-01-01 UTC: a window begins there."""

QUERY = "averages"
LINGER_S = 1.0
SLOT_S = 1.0
RUN_EVENTS_MAX = 5000

SIZES = (100, 1000, 3000, 6000)
RUNS = (1, 2, 3)
REPEATS = 6
WARM_UPS = 60
"""Spark's JVM compiles hot code: the first micro-batches take twice as long."""
CALIBRATION_SENSORS = 150
_WITHIN_S = 60.0
_ENDS_WITHIN_S = 240.0
"""A gateway that is stopped first finishes what it has read, and in overload much waits."""


# ------------------------------------------------------------------------------------------------------------ readings


def readings(sensors: int, count: int, seed: int, first: int = 0) -> pa.RecordBatch:
    """Return ``count`` readings from number ``first`` on: sensors take turns, and 5 % of the readings are outliers."""
    draw = np.random.default_rng([seed, sensors, first])
    numbers = np.arange(first, first + count)
    at_us = BASE_US + np.round(numbers * 1e6 / (READINGS_PER_S * sensors)).astype(np.int64)
    values = draw.normal(20.0, 2.0, count)
    values[draw.random(count) >= SELECTIVITY] += 2 * USUAL
    return pa.RecordBatch.from_arrays(
        [
            pa.array((numbers % sensors).astype(np.int32)),
            pa.array(at_us, pa.timestamp("us", "UTC")),
            pa.array(np.round(values, 3)),
        ],
        names=["sensor", "at", "value"],
    )


def usual_in_windows(batch: pa.RecordBatch) -> dict[int, int]:
    """Return the number of readings that are not outliers in each window, by its number."""
    at_us = batch.column("at").cast(pa.int64()).to_numpy()
    usual = batch.column("value").to_numpy() <= USUAL
    windows, counts = np.unique((at_us[usual] - BASE_US) // (WINDOW_S * 1_000_000), return_counts=True)
    return {int(window): int(count) for window, count in zip(windows, counts, strict=True)}


# --------------------------------------------------------------------------------------------------------- calibration


@dataclass(frozen=True, slots=True)
class Batch:
    """A timed micro-batch: its runs and readings, its results, and the time to the next plan."""

    runs: int
    events: int
    results: int
    batch_s: float
    between_s: float


def time_micro_batches(sensors: int, seed: int) -> list[Batch]:
    """Run micro-batches of all sizes, shuffled, for the query on Spark in this process, without a gateway."""
    workdir = Path(tempfile.mkdtemp(prefix="cepsim-"))
    session = build_session("local[1]", workdir, 1)
    feeds = FeedServer()
    try:
        spec = OpenQuery(
            query=QUERY,
            epoch=1,
            schema_ddl=SCHEMA_DDL,
            sql="",
            function="cepsim_query:averages",
            code_path=str(Path(__file__).parent),
            max_batch_runs=BATCH_RUNS_MAX,
            checkpoint_dir=str(workdir / "checkpoints"),
        )
        query = understand(session, spec)
        return list(_timed(query, feeds, sensors, seed))
    finally:
        feeds.close()
        stop_session(session)
        shutil.rmtree(workdir, ignore_errors=True)


def _timed(query: KnownQuery, feeds: FeedServer, sensors: int, seed: int) -> Iterator[Batch]:
    clock = SystemClock()
    answered = threading.Semaphore(0)
    answers: list[tuple[RunOutcome, float]] = []
    deaths: list[str] = []

    def take(some: Sequence[RunOutcome]) -> None:
        answers.extend((answer, clock.now()) for answer in some)
        answered.release()

    def died(reason: str) -> None:
        deaths.append(reason)
        answered.release()

    order = [(runs, size) for runs in RUNS for size in SIZES for _ in range(REPEATS)]
    random.Random(seed).shuffle(order)
    order = [(max(RUNS), 1000)] * WARM_UPS + order
    stream = StatefulStream(query, feeds, clock, Reports.of(take, died))
    stream.open()
    seq, committed_s = 0, 0.0
    try:
        for number, (runs, size) in enumerate(order):
            events = readings(sensors, size, seed, seq)
            edges = [size * part // runs for part in range(runs + 1)]
            for one, other in pairwise(edges):
                stream.put(pack(events.slice(one, other - one)), None, seq + one, seq + other)
            committed_s = clock.now()
            stream.committed(seq - 1)  # the next micro-batch is complete and may be planned
            seq += size
            if not answered.acquire(timeout=_WITHIN_S) or deaths:
                raise RuntimeError(deaths[0] if deaths else f"no answer in {_WITHIN_S:.0f} s")
            answer, at_s = answers[-1]
            if number == 0:
                # It was planned as soon as its first run was there: wait for the rest.
                while answer.items[-1].end < seq:
                    stream.committed(answer.items[-1].end - 1)
                    answered.acquire(timeout=_WITHIN_S)
                    answer, at_s = answers[-1]
            between_s = at_s - answer.batch_s - committed_s
            if number >= WARM_UPS:
                yield Batch(len(answer.items), size, answer.rows.num_rows, answer.batch_s, between_s)
    finally:
        stream.close()


def time_commits(folder: Path, times: int = 30) -> float:
    """Return the median time of a sink and a run log on this disk for a micro-batch without results."""
    head = LogHead(owner="calibration", started_wall_s=0.0)
    log = RunLog(folder / "calibration" / "runs.log", head)
    (folder / "calibration" / "out").mkdir()
    sink = FileSink(folder / "calibration" / "out", owner="calibration", format="jsonl", ordered=True)
    nothing = pa.RecordBatch.from_pylist([], schema=pa.schema([("sensor", pa.int32())]))
    took_s = []
    for at in range(times):
        log.append([RunRecord(at, at, Position(record=at), Position(record=at + 1), 0.0)])
        began_s = time.perf_counter()
        sink.commit([Released(at, at, nothing, False)], Position(record=at + 1))
        log.retire(at)
        took_s.append(time.perf_counter() - began_s)
    sink.close()
    log.close()
    return statistics.median(took_s)


# ------------------------------------------------------------------------------------------------------ a real gateway


@dataclass(frozen=True, slots=True)
class SeenWindow:
    """A window's results as they became visible.

    Attributes:
        number: of the window, from 0.
        visible_s: when, since the first reading was due.
        results: averages, one for each sensor.
        readings: the number of readings in them.
    """

    number: int
    visible_s: float
    results: int
    readings: int


class Gateway:
    """A gateway that runs the query over a file of readings.

    Args:
        folder: of this run.
        state_dir: shared by runs, so that Spark is started once.
        name: of the query, another for each run.
        sensors: number of sensors.
        count: number of readings.
        seed: of their values.
    """

    def __init__(self, folder: Path, state_dir: Path, name: str, sensors: int, count: int, seed: int) -> None:
        folder.mkdir(parents=True)
        self._folder, self._state_dir, self._name = folder, state_dir, name
        self._batch = readings(sensors, count, seed)
        pq.write_table(pa.Table.from_batches([self._batch]), folder / "readings.parquet")
        shutil.copy(Path(__file__).with_name("cepsim_query.py"), folder)
        document = {
            "gateway": {
                "state_dir": str(state_dir),
                "slot": f"{SLOT_S:g}s",
                "api": {"listen": "127.0.0.1:0"},
                "orphan_after": "1200s",
            },
            "private": {"spark": {"master": "local[1]"}},
            "cloud": {
                "provider": "process",
                "max_vms": 1,
                "boot": "1s",
                "billing": {"period": "60s", "minimum": "60s", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
                "budget": {"usd_per_day": 1},
            },
            "queries": {
                name: {
                    "source": {
                        "type": "file",
                        "path": str(folder / "readings.parquet"),
                        "replay": {"rate": f"{READINGS_PER_S * sensors:g}/s"},
                    },
                    "schema": SCHEMA_DDL,
                    "function": "cepsim_query:averages",
                    "runs": {"linger": f"{LINGER_S:g}s", "max_events": RUN_EVENTS_MAX},
                    "sink": {"type": "file", "path": str(folder / "out")},
                    "qos": {"latency": "30s"},
                    "switching": {"mode": "off"},
                }
            },
        }
        with (folder / "config.yaml").open("w") as file:
            YAML(typ="safe").dump(document, file)

    def play(self, until_window: int, within_s: float) -> list[SeenWindow]:
        """Run until the results of a window are visible, and return those of all windows up to it.

        Raises:
            RuntimeError: they were not in time, or are wrong.
        """
        log = self._folder / "gateway.log"
        # The state_dir is shared, but belongs to one config at a time.
        (self._state_dir / CLAIM_NAME).unlink(missing_ok=True)
        with log.open("wb") as file:
            command = [sys.executable, "-m", "gateway", "run", str(self._folder / "config.yaml"), "--keep-hosts"]
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            ends_s = time.monotonic() + within_s
            seen: list[SeenWindow] = []
            while not seen or seen[-1].number < until_window:
                time.sleep(0.5)
                if process.poll() is not None or time.monotonic() > ends_s:
                    raise RuntimeError(f"no window {until_window} within {within_s:.0f} s; see {log}:\n{_tail(log)}")
                seen = self._windows()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_ENDS_WITHIN_S)
        self._check(seen)
        return seen

    def _began_s(self) -> float | None:
        for path in (self._state_dir / "queries" / self._name).glob("**/*"):
            if path.is_file() and path.name.startswith("runs"):
                first = path.read_bytes().split(b"\n", 1)[0].partition(b" ")[2]
                return float(json.loads(first)["started_wall_s"])
        return None

    def _windows(self) -> list[SeenWindow]:
        began_s = self._began_s()
        if began_s is None or not (self._folder / "out").exists():
            return []
        found: dict[int, SeenWindow] = {}
        for path in (self._folder / "out").iterdir():
            if PartName.parse(path.name) is None or not path.stat().st_size:
                continue
            # A part gets its name last: so its change of status is the time when it became visible.
            visible_s = path.stat().st_ctime_ns / 1e9 - began_s
            for line in path.read_bytes().splitlines():
                row = json.loads(line)
                number = window_number(row["opens"])
                old = found.get(number, SeenWindow(number, visible_s, 0, 0))
                found[number] = SeenWindow(
                    number, max(old.visible_s, visible_s), old.results + 1, old.readings + row["readings"]
                )
        return [found[number] for number in sorted(found)]

    def _check(self, seen: Sequence[SeenWindow]) -> None:
        expected = usual_in_windows(self._batch)
        for window in seen:
            if window.readings != expected[window.number]:
                raise RuntimeError(f"{window} should hold {expected[window.number]} readings: results are wrong")


def window_number(opens: str) -> int:
    """Return the number of the window that opens at this time of Spark's."""
    at_us = int(np.datetime64(opens.rstrip("Z").replace(" ", "T"), "us").astype(np.int64))
    return (at_us - BASE_US) // (WINDOW_S * 1_000_000)


def _tail(path: Path) -> str:
    return path.read_text()[-3000:]


def end_hosts(state_dir: Path) -> None:
    """End the engine hosts that gateways left running below a state_dir."""
    for path in state_dir.rglob("host.json"):
        pid = int(json.loads(path.read_text())["pid"])
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            continue
