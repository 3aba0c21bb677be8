"""What the gateway costs: one query on one core from Kafka to Kafka, beside plain Spark on the same core."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ruamel.yaml import YAML

from suite.brokers import BROKERS, broker
from suite.plainspark import Job
from suite.row import ROOT, Row, SideError
from suite.taxclock import P50, P99, RATE, fill, make_topics, measure
from suite.taxload import WORKS, Work
from suite.turns import OURS, Goal, Sample

MICRO, REAL, BATCH = "plain Spark", "plain Spark, real-time", "batch job"
JARS = ROOT / "build" / "spark-kafka" / "jars"
_BATCH_WITHIN_S = 240.0


@contextmanager
def around() -> Iterator[Mapping[str, str]]:
    """Run a broker."""
    with broker() as there:
        yield {BROKERS: there.brokers}


def ours(kind: str) -> Sample:
    """Measure a gateway whose query stays at home."""
    work = WORKS[kind]()
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"
        return measure(work, partial(gateway, Path(name), work, log), log)


def gateway(folder: Path, work: Work, log: Path, events: str, results: str) -> subprocess.Popen[bytes]:
    """Start a gateway whose query stays at home; ``events`` and ``results`` are topics."""
    brokers = os.environ[BROKERS]
    config = {
        "gateway": {"state_dir": str(folder / "state"), "api": {"listen": "127.0.0.1:0"}},
        "private": {"spark": {"master": "local[1]"}},
        "cloud": {
            "provider": "process",
            "max_vms": 1,
            "boot": "30s",
            "billing": {"period": "1h", "minimum": "1h", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
            "budget": {"usd_per_day": 5},
        },
        "queries": {
            "tax": {
                "source": {"type": "kafka", "brokers": brokers, "topics": [events]},
                "schema": work.schema,
                "sql": work.sql,
                "sink": {"type": "kafka", "brokers": brokers, "topic": results},
                "qos": {"latency": "2s"},
                "switching": {"mode": "off"},
            }
        },
    }
    path = folder / "config.yaml"
    with path.open("w") as file:
        YAML(typ="safe").dump(config, file)
    return started([sys.executable, "-m", "gateway", "run", str(path)], log)


def plain(mode: str, kind: str) -> Sample:
    """Measure the same query as Structured Streaming."""
    work = WORKS[kind]()
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"
        return measure(work, lambda *topics: started(job(mode, work, name, *topics).command(), log), log)


def batch(kind: str) -> Sample:
    """Measure the limit: a batch job on the same events, without a sink."""
    work, topic = WORKS[kind](), uuid.uuid4().hex
    asyncio.run(make_topics(topic))
    asyncio.run(fill(topic, work, work.warm_up + work.bulk))
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        command = job("batch", work, name, topic, "").command()
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BATCH_WITHIN_S, check=False)
    if done.returncode != 0:
        raise SideError(done.stderr[-2000:])
    return Sample({RATE: (work.warm_up + work.bulk) / json.loads(done.stdout.splitlines()[-1])})


def job(mode: str, work: Work, folder: str, events: str, results: str) -> Job:
    """Return the same query for Spark alone.

    Raises:
        SideError: Spark's Kafka connector is missing.
    """
    jars = ",".join(str(jar) for jar in sorted(JARS.glob("*.jar")))
    if not jars:
        raise SideError("Spark's Kafka connector is missing: run make connector")
    return Job(mode, os.environ[BROKERS], events, results, work.schema, work.sql, jars, folder)


def started(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program whose output goes to a file."""
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file)


def row(kind: str, title: str, note: str, *, least: float) -> Row:
    """Return the row of a kind of work; throughput must be at least so many times that of plain Spark."""
    sides: dict[str, Callable[[], Sample]] = {
        OURS: partial(ours, kind),
        MICRO: partial(plain, "micro-batch", kind),
        REAL: partial(plain, "real-time", kind),
        BATCH: partial(batch, kind),
    }
    return Row(
        name=kind,
        title=title,
        sides=sides,
        goals=(
            Goal(RATE, MICRO, least),
            Goal(RATE, BATCH, 0.67),
            Goal(P50, MICRO, 0.8, at_least=False),
            Goal(P99, MICRO, 1.0, at_least=False),
        ),
        note=note,
        around=around,
    )
