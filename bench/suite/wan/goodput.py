"""Events that get through a WAN of 80 ms and 50 Mbit/s."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from infra.wan import Wan, WanSettings, WanUnavailableError
from infra.wan.commands import inside
from suite.brokers import BROKERS
from suite.row import Row, SideError
from suite.turns import OURS, Goal, Sample
from suite.wan.ends import prepare
from suite.wan.streams import RUN_EVENTS, new_encoder, runs
from tests.connectors.kafka_broker import Broker

RATE_BITS_PER_S, ROUND_TRIP_S = 50e6, 0.08
RATE = "events/s"
_HOME, _CLOUD, _ADDRESS = "SPILLWAY_BENCH_HOME", "SPILLWAY_BENCH_CLOUD", "SPILLWAY_BENCH_ADDRESS"
_WITHIN_S = 90.0


@contextmanager
def around() -> Iterator[Mapping[str, str]]:
    """Make a WAN (as root) with a Kafka broker in the cloud."""
    settings = WanSettings(delay_s=ROUND_TRIP_S / 2, rate_bits_per_s=RATE_BITS_PER_S)
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        wan = Wan(settings)
        try:
            try:
                runner.run(wan.start())
            except WanUnavailableError as error:
                raise SideError(f"goodput: this machine can have no WAN: {error}") from error
            cloud = runner.run(wan.add("cloud"))
            broker = Broker(Path(name), cloud.address, inside(cloud.namespace))
            broker.start()
            try:
                yield {
                    _HOME: wan.home.namespace,
                    _CLOUD: cloud.namespace,
                    _ADDRESS: cloud.address,
                    BROKERS: broker.brokers,
                }
            finally:
                broker.stop()
        finally:
            runner.run(wan.stop())


def _started(site: str, *arguments: str) -> subprocess.Popen[str]:
    command = inside(os.environ[site], sys.executable, "-m", "suite.wan.streams", *arguments)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if line := process.stdout.readline():
        return line
    raise SideError(process.communicate(timeout=_WITHIN_S)[1][-2000:])


def _end(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


def ours() -> Sample:
    """Measure the gateway's encoder and link; the other end decodes."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        prepare(Path(name), os.environ[_ADDRESS])
        far = _started(_CLOUD, "receive", name)
        near = _started(_HOME, "send", name, os.environ[_ADDRESS], _line(far).strip())
        try:
            return Sample({RATE: json.loads(_line(far))})
        finally:
            _end(near, far)


def by_kafka() -> Sample:
    """Measure a Kafka producer (librdkafka) with zstd."""
    near = _started(_HOME, "produce", os.environ[BROKERS])
    try:
        return Sample({RATE: json.loads(_line(near))})
    finally:
        _end(near)


def by_line() -> Sample:
    """Compute the limit: as many of our payloads as the line has bits for."""
    encoder = new_encoder()
    sent_bytes = [len(encoder.encode(run).payload) for run in runs()]
    return Sample({RATE: RATE_BITS_PER_S / 8 / (sum(sent_bytes) / len(sent_bytes)) * RUN_EVENTS})


LINE = "line rate, our bytes"
ROW = Row(
    name="goodput",
    title="events through a WAN of 80 ms and 50 Mbit/s",
    sides={OURS: ours, "Kafka producer, zstd": by_kafka, LINE: by_line},
    goals=(Goal(RATE, LINE, 0.95), Goal(RATE, "Kafka producer, zstd", 1.0)),
    note="Real netem. JSON of 226 bytes; ours sends the 4 columns that a query needs, the producer sends whole events. "
    "6 s after 3 s of warm-up; an event counts when the other end has decoded it, or when the broker has acknowledged "
    "it. The limit is the line's rate by the bytes of our payloads.",
    around=around,
)
