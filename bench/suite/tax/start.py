"""How long it takes from the start of a program to the first result."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from suite.row import ROOT, Row
from suite.tax import programs
from suite.tax.clock import end, fill, first_result, leave_cpu, log_told, new_topics
from suite.tax.load import light
from suite.tax.programs import gateway_of, job, query, started, write_config
from suite.turns import OURS, Goal, Sample

FIRST = "s to the first result"
NOT_PREPARED = "Spillway, not prepared"
ADDED = "s to the first result, a query added"
_EVENTS = 100
_CACHES = "XDG_CACHE_HOME"
"""Where `engines.spark.classarchive` has its archive."""
_PREPARING_S = 300.0


@contextmanager
def around() -> Iterator[Mapping[str, str]]:
    """Run a broker, with a folder for caches that `spillway prepare` has filled."""
    with programs.around() as there, tempfile.TemporaryDirectory(prefix="spillway-bench-") as caches:
        prepare = [sys.executable, "-m", "gateway", "prepare"]
        env = {**os.environ, _CACHES: caches}
        subprocess.run(prepare, cwd=ROOT, env=env, capture_output=True, check=True, timeout=_PREPARING_S)
        yield {**there, _CACHES: caches}


def _filled() -> tuple[str, str]:
    """Return a new topic with events, and one for their results."""
    events, results = asyncio.run(new_topics())
    asyncio.run(fill(events, light(), _EVENTS))
    return events, results


def _name(events: str) -> str:
    """Return the name of a query, and of its consumer group, in which one that has ended stays a member for a while."""
    return f"q-{events}"


@contextmanager
def _answered(
    start: Callable[[str, str], subprocess.Popen[bytes]], log: Path
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """Yield a system that has a result, and how long its start took."""
    events, results = _filled()
    with log_told(log):
        begun_s = time.time()
        process = start(events, results)
        leave_cpu()
        try:
            came_s = asyncio.run(first_result(results, lambda: process.poll() is None))
            yield process, came_s - begun_s
        finally:
            end(process)


def ours() -> Sample:
    """Measure a gateway after ``spillway prepare``, as its package and its image are made, and a query added to it."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder, log = Path(name), Path(name) / "log"
        queries: dict[str, object] = {}

        def start(events: str, results: str) -> subprocess.Popen[bytes]:
            queries[_name(events)] = query(light(), events, results)
            return gateway_of(folder, queries, log)

        with _answered(start, log) as (process, first_s):
            events, results = _filled()
            queries[_name(events)] = query(light(), events, results)
            begun_s = time.time()
            write_config(folder, queries)
            process.send_signal(signal.SIGHUP)
            came_s = asyncio.run(first_result(results, lambda: process.poll() is None))
    return Sample({FIRST: first_s, ADDED: came_s - begun_s})


def ours_cold() -> Sample:
    """Measure a gateway on a machine that is not prepared."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder, log = Path(name), Path(name) / "log"
        os.environ[_CACHES] = str(folder / "caches")

        def start(events: str, results: str) -> subprocess.Popen[bytes]:
            return gateway_of(folder, {_name(events): query(light(), events, results)}, log)

        with _answered(start, log) as (_, first_s):
            return Sample({FIRST: first_s})


def by_spark() -> Sample:
    """Measure a Structured Streaming job."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"

        def start(events: str, results: str) -> subprocess.Popen[bytes]:
            return started(job("micro-batch", light(), name, events, results).command(), log)

        with _answered(start, log) as (_, first_s):
            return Sample({FIRST: first_s})


def by_java() -> Sample:
    """Measure the limit: a JVM that does nothing."""
    java = shutil.which("java") or Path(os.environ["JAVA_HOME"], "bin", "java")
    begun_s = time.perf_counter()
    subprocess.run([java, "-version"], capture_output=True, check=True)
    return Sample({FIRST: time.perf_counter() - begun_s})


ROW = Row(
    name="start",
    title="from start to the first result: filter and arithmetic, from Kafka to Kafka on one core",
    sides={OURS: ours, NOT_PREPARED: ours_cold, "plain Spark": by_spark, "JVM": by_java},
    goals=(Goal(FIRST, "plain Spark", 0.7, at_least=False), Goal(ADDED, None, 3.0, at_least=False)),
    note="The topic has events before the program starts; the first committed result ends the measurement. The gateway "
    "was prepared (spillway prepare); then a second query is added to its config, and SIGHUP sent. The JVM only prints "
    "its version. What a gateway takes that was not prepared is measured twice only.",
    around=around,
    seldom=frozenset({NOT_PREPARED}),
)
