"""How long it takes from the start of a program to the first result."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from suite.row import Row
from suite.tax.clock import fill, first_result_s, log_told, new_topics
from suite.tax.load import light
from suite.tax.programs import around, gateway, job, started
from suite.turns import OURS, Goal, Sample

FIRST = "s to the first result"
_EVENTS = 100


def _measured(start: Callable[[str, str], subprocess.Popen[bytes]], log: Path) -> Sample:
    there, out = asyncio.run(new_topics())
    asyncio.run(fill(there, light(), _EVENTS))
    with log_told(log):
        return Sample({FIRST: asyncio.run(first_result_s(out, lambda: start(there, out)))})


def ours() -> Sample:
    """Measure a gateway after ``spillway prepare``, as its package and its image are made."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"
        return _measured(partial(gateway, Path(name), light(), log), log)


def by_spark() -> Sample:
    """Measure a Structured Streaming job."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"

        def start(there: str, out: str) -> subprocess.Popen[bytes]:
            return started(job("micro-batch", light(), name, there, out).command(), log)

        return _measured(start, log)


def by_java() -> Sample:
    """Measure the limit: a JVM that does nothing."""
    java = shutil.which("java") or Path(os.environ["JAVA_HOME"], "bin", "java")
    begun_s = time.perf_counter()
    subprocess.run([java, "-version"], capture_output=True, check=True)
    return Sample({FIRST: time.perf_counter() - begun_s})


ROW = Row(
    name="start",
    title="from start to the first result: filter and arithmetic, from Kafka to Kafka on one core",
    sides={OURS: ours, "plain Spark": by_spark, "JVM": by_java},
    goals=(Goal(FIRST, "plain Spark", 0.7, at_least=False),),
    note="The topic has events before the program starts; the first committed result ends the measurement. The gateway "
    "was prepared (spillway prepare); the JVM only prints its version.",
    around=around,
)
