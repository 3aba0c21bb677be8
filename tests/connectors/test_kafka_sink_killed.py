"""Writers to Kafka are killed, or stopped and overtaken by others: each result is there once, whatever happens."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.sinks.kafka.control import ControlTopic
from infra.clock import SystemClock
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_sinks import make_sink, records, values
from tests.connectors.sink_contract import row

HERE = Path(__file__).parent
SEED = 20261121
KILLS = 30
PROCESS_S = 60.0
ENDLESS = 10**9


class Writer:
    """A running ``kafka_sink_writer.py``."""

    def __init__(self, broker: Broker, topic: str, epoch: int, count: int = ENDLESS, failpoints: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "kafka_sink_writer.py"), broker.brokers, topic, str(epoch), str(count)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "SPILLWAY_FAILPOINTS": failpoints, "PYTHONPATH": str(HERE.parents[1])},
        )

    def says(self, word: str) -> str:
        """Wait for a line that begins with this text, and return the rest of it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(f"{word} "):
                return line.removeprefix(word).strip()
        raise AssertionError(f'the writer ended with {self.process.wait()} and never said "{word}"')

    def ends(self) -> int:
        """Wait until it ends, and return its exit code."""
        assert self.process.stdout is not None
        self.process.stdout.read()
        return self.process.wait(PROCESS_S)


@contextmanager
def writer(broker: Broker, topic: str, epoch: int, count: int = ENDLESS, failpoints: str = "") -> Iterator[Writer]:
    """A writer that ends with the test at the latest."""
    made = Writer(broker, topic, epoch, count, failpoints)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        assert made.process.stdout is not None
        made.process.stdout.close()


async def finish(broker: Broker, topic: str, epoch: int, said: int) -> None:
    """Let a last writer run for a while, and check everything in the topic."""
    with writer(broker, topic, epoch, count=said + 30) as last:
        found = int(last.says("open"))
        assert found >= said, "what was said to be committed is in"
        assert last.ends() == 0
    rows = await values(broker, topic)
    assert rows == [row(n) for n in range(len(rows))]
    progress = await ControlTopic(f"{topic}-progress", "q", {"bootstrap_servers": broker.brokers}, SystemClock()).last(
        settled=True
    )
    assert progress is not None
    assert progress.committed == [(0, len(rows) - 1)]
    assert progress.source.record == len(rows)


async def test_killed_at_random_moments(broker: Broker) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    topic = await broker.create_topic()
    said = 0
    for epoch in range(1, KILLS + 1):
        with writer(broker, topic, epoch) as one:
            if chance.random() < 0.2:
                time.sleep(chance.uniform(0.5, 1.0))  # it may be opening the sink
                continue
            found = int(one.says("open"))
            assert found >= said, "what was said to be committed is in"
            said = found
            for _ in range(chance.randint(0, 4)):
                said = int(one.says("committed"))
            time.sleep(chance.uniform(0, 0.04))  # into the midst of whatever it does
    await finish(broker, topic, KILLS + 1, said)


@pytest.mark.parametrize("place", ["prepared", "visible"])
async def test_killed_at_each_place(broker: Broker, place: str) -> None:
    topic = await broker.create_topic()
    visible = 0
    for time_ in range(1, 5):
        with writer(broker, topic, time_, failpoints=f"sink.commit.{place}=kill@{time_}") as one:
            assert int(one.says("open")) == visible
            assert one.ends() == -signal.SIGKILL
        commits = time_ if place == "visible" else time_ - 1
        visible += commits * 15
    await finish(broker, topic, 5, visible)


async def test_what_was_prepared_only_is_never_visible(broker: Broker) -> None:
    topic = await broker.create_topic()
    with writer(broker, topic, 1, failpoints="sink.commit.prepared=kill@2") as one:
        assert one.ends() == -signal.SIGKILL
    everything = await records(broker, topic, isolation="read_uncommitted")
    assert len(everything) == 30, "the second commit was written"
    sink = make_sink(broker.brokers, topic, epoch=2)
    await sink.open()
    assert list(sink.committed) == [(0, 14)]
    await sink.close()
    # The new writer has settled it: nobody waits for its time-out.
    assert await values(broker, topic) == [row(n) for n in range(15)]


async def test_a_writer_that_was_stopped_and_overtaken_is_fenced(broker: Broker) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    topic = await broker.create_topic()
    epoch = 1
    for _ in range(3):
        with writer(broker, topic, epoch) as old:
            old.says("committed")
            time.sleep(chance.uniform(0, 0.02))
            old.process.send_signal(signal.SIGSTOP)
            with writer(broker, topic, epoch + 1) as new:
                new.says("committed")
                old.process.send_signal(signal.SIGCONT)
                why = old.says("fenced")
                assert f"its epoch is {epoch + 1}" in why
                assert old.process.wait(PROCESS_S) == 3
                new.says("committed")
        epoch += 2
    await finish(broker, topic, epoch, 0)
