"""What the gateway costs: one query on one core from Kafka to Kafka, beside plain Spark on the same core.

Each system is started and warmed up once. Between its turns plain Spark is paused; a gateway without events is left
alone, as its queries ask nothing of Spark.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from unittest.mock import patch

import psutil

from suite.row import CPU, Row, SideError, side_environment
from suite.tax import programs
from suite.tax.clock import P50, P99, RATE, System, end, fill, is_alive, leave_cpu, log_told, new_topics, turn, warm_up
from suite.tax.load import WORKS, Work
from suite.turns import OURS, Goal, Sample

REFERENCE, MICRO, REAL, BATCH = "Spillway, by reference", "plain Spark", "plain Spark, real-time", "batch job"
_PATHS = {OURS: "gateway", REFERENCE: "reference"}
_MODES = {MICRO: "micro-batch", REAL: "real-time"}
_BATCH_WITHIN_S, _POLL_S = 240.0, 0.05
_SYSTEMS, _HALF_PER_S = "SPILLWAY_BENCH_SYSTEMS", "SPILLWAY_BENCH_PER_S"


@contextmanager
def around(
    kind: str, streams: Sequence[str], paced_by: Sequence[str], *, batches: bool = True
) -> Iterator[Mapping[str, str]]:
    """Run a broker and all systems, each warmed up.

    Args:
        kind: of work.
        streams: the sides that run all the time.
        paced_by: latency is measured at half of what the slowest of these takes.
        batches: whether there is a batch job, too.
    """
    work, systems, warm_per_s = WORKS[kind](), dict[str, object](), dict[str, float]()
    with ExitStack() as stack:
        there = stack.enter_context(programs.around())
        stack.enter_context(patch.dict(os.environ, side_environment(there)))
        for side in streams:
            system, warm_per_s[side] = stack.enter_context(_streaming(side, work))
            systems[side] = asdict(system)
        if batches:
            systems[BATCH] = stack.enter_context(_batches(work))
        half_per_s = min(warm_per_s[side] for side in paced_by) / 2
        yield {**there, _SYSTEMS: json.dumps(systems), _HALF_PER_S: str(half_per_s)}


@contextmanager
def _streaming(side: str, work: Work) -> Iterator[tuple[System, float]]:
    """Run a system; yield it, warm, and how many events it takes in a second."""
    topics = asyncio.run(new_topics())

    def start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
        if side in _PATHS:
            return programs.gateway(folder, work, log, *topics, data_path=_PATHS[side])
        return programs.started(programs.job(_MODES[side], work, str(folder), *topics).command(), log)

    with _running(start) as (process, log):
        system = System(process.pid, *topics, is_gateway=side in _PATHS)
        with log_told(log):
            asyncio.run(warm_up(work, system))
            warm = asyncio.run(turn(work, system))
        if side not in _PATHS:
            _pause(process.pid)
        yield system, warm.figures[RATE]


@contextmanager
def _batches(work: Work) -> Iterator[dict[str, object]]:
    """Run what does a batch job whenever it is asked; it has done one."""
    events, _ = asyncio.run(new_topics())
    asyncio.run(fill(events, work, work.bulk))

    def start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
        return programs.started(programs.job("batch", work, str(folder), events, "").command(), log)

    with _running(start) as (process, log):
        told = {"pid": process.pid, "folder": str(log.parent)}
        with log_told(log):
            for _ in range(3):
                _ask(told)
        _pause(process.pid)
        yield told


@contextmanager
def _running(
    start: Callable[[Path, Path], subprocess.Popen[bytes]],
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a program on the CPU of the sides; yield it and its log."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"
        process = start(Path(name), log)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, {int(os.environ[CPU])})
        try:
            yield process, log
        finally:
            _resume(process.pid)
            end(process)


def _family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _pause(pid: int) -> None:
    for process in _family(pid):
        process.suspend()


def _resume(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        for process in _family(pid):
            process.resume()


def _ask(told: Mapping[str, object]) -> float:
    """Return how long a batch job takes, in seconds.

    Raises:
        SideError: it ended, or took too long.
    """
    folder, ends_s = Path(str(told["folder"])), time.monotonic() + _BATCH_WITHIN_S
    (folder / "ask").touch()
    while not (folder / "answer").exists():
        if not is_alive(int(str(told["pid"]))) or time.monotonic() > ends_s:
            raise SideError("the batch job ended, or took too long")
        time.sleep(_POLL_S)
    took_s = float((folder / "answer").read_text())
    (folder / "answer").unlink()
    return took_s


def measured(kind: str, side: str) -> Sample:
    """Measure a system that is warm."""
    work, told = WORKS[kind](), json.loads(os.environ[_SYSTEMS])[side]
    leave_cpu()
    _resume(told["pid"])
    try:
        if side == BATCH:
            return Sample({RATE: work.bulk / _ask(told)})
        return asyncio.run(turn(work, System(**told), half_per_s()))
    finally:
        if side not in _PATHS:
            _pause(told["pid"])


def half_per_s() -> float:
    """Return how many events there are in a second while latency is measured."""
    return float(os.environ[_HALF_PER_S])


def row(kind: str, title: str, note: str, *, least: float, ours: Sequence[str] = (OURS,)) -> Row:
    """Return the row of a kind of work; throughput must be at least so many times that of plain Spark.

    ``ours`` are the gateways that are measured.
    """
    return Row(
        name=kind,
        title=title,
        sides={side: partial(measured, kind, side) for side in (*ours, MICRO, REAL, BATCH)},
        goals=(
            Goal(RATE, MICRO, least),
            Goal(RATE, BATCH, 0.67),
            Goal(P50, MICRO, 0.8, at_least=False),
            Goal(P99, MICRO, 1.0, at_least=False),
        ),
        note=note,
        around=partial(around, kind, (*ours, MICRO, REAL), (OURS, MICRO)),
        seldom=frozenset({REFERENCE, REAL}),
    )
