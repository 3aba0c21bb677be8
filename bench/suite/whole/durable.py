"""Carrying events from Kafka to Kafka without losing one: a whole gateway whose engine does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from suite.brokers import BROKERS
from suite.row import ROOT, Row, SideError
from suite.tax.clock import RATE as EVENTS_PER_S
from suite.tax.clock import measure
from suite.tax.load import plain
from suite.tax.programs import around, gateway, started
from suite.turns import OURS, Goal, Sample

RATE = "MiB/s"
EVENT_BYTES = 1_000
MIRROR, COPY, DISK = "MirrorMaker 2", "aiokafka", "copy and fdatasync"
_JARS = ROOT / "build" / "mirror" / "jars"
_MIB = 1 << 20


def _rate(start: Callable[[str, str], subprocess.Popen[bytes]], log: Path) -> Sample:
    found = measure(plain(), start, log)
    return Sample({RATE: found.figures[EVENTS_PER_S] * EVENT_BYTES / _MIB}, found.answer)


def ours() -> Sample:
    """Measure a whole gateway without Spark: source, run log, link, reorder buffer, transactional sink."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"
        start = partial(gateway, Path(name), plain(), log, module=("suite.whole.gateway",))
        return _rate(start, log)


def by_mirror() -> Sample:
    """Measure MirrorMaker 2, which copies each record as it is, at least once.

    Raises:
        SideError: its jars are missing.
    """
    if not _JARS.is_dir():
        raise SideError("MirrorMaker is missing: run make mirror")
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log, config = Path(name) / "log", Path(name) / "mirror.properties"

        def start(events: str, results: str) -> subprocess.Popen[bytes]:
            alias = results.removesuffix(f"-{events}")
            settings = {
                "clusters": f"{alias},copy",
                f"{alias}.bootstrap.servers": os.environ[BROKERS],
                "copy.bootstrap.servers": os.environ[BROKERS],
                f"{alias}->copy.enabled": "true",
                f"copy->{alias}.enabled": "false",
                "topics": events,
                "replication.policy.separator": "-",
                "emit.heartbeats.enabled": "false",
                "emit.checkpoints.enabled": "false",
                "refresh.topics.interval.seconds": "5",
                "tasks.max": "1",
                **dict.fromkeys(_REPLICATED, "1"),
                "copy.producer.linger.ms": "5",
                "copy.producer.batch.size": str(256 * 1024),
            }
            config.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
            jars = f"{_JARS}{os.sep}*"
            command = ["java", "-Xmx512m", "-cp", jars, "org.apache.kafka.connect.mirror.MirrorMaker"]
            return started([*command, str(config)], log)

        return _rate(start, log)


_REPLICATED = (
    "replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "offset-syncs.topic.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
    "config.storage.replication.factor",
)


def by_aiokafka() -> Sample:
    """Measure a loop of aiokafka's consumer and producer, at least once."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"

        def start(events: str, results: str) -> subprocess.Popen[bytes]:
            return started([sys.executable, "-m", "suite.whole.copying", os.environ[BROKERS], events, results], log)

        return _rate(start, log)


def by_disk() -> Sample:
    """Measure the limit: the same events, written to a file, each MiB on the disk before the next."""
    work = plain()
    lines = [work.event(at, at) for at in range(work.bulk)]
    with tempfile.TemporaryFile() as file:
        begun_s, waiting = time.perf_counter(), 0
        for line in lines:
            waiting += file.write(line)
            if waiting >= _MIB:
                file.flush()
                os.fdatasync(file.fileno())
                waiting = 0
        file.flush()
        os.fdatasync(file.fileno())
        took_s = time.perf_counter() - begun_s
    return Sample({RATE: work.bulk * EVENT_BYTES / _MIB / took_s})


ROW = Row(
    name="durable",
    title="from Kafka to Kafka, nothing lost: events of 1 kB on one core",
    sides={OURS: ours, MIRROR: by_mirror, COPY: by_aiokafka, DISK: by_disk},
    goals=(Goal(RATE, MIRROR, 1.0), Goal(RATE, COPY, 1.0), Goal(RATE, None, 75.0)),
    note="A whole gateway with its engine host, which runs without Spark and sends each run back. Its results are "
    "written exactly once, in transactions; the peers copy at least once. The gateway parses each event and writes it "
    "anew; the peers copy bytes. 40,000 events after 20,000 that warm up; results are compared.",
    around=around,
)
