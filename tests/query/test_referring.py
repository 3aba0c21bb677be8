"""Runs by reference: how a lane sends them, when the gateway reads their events, and which queries may have them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import gateway.core.exchange.events as told
from gateway.config.models import PrivateConfig
from gateway.connectors.position import Position
from gateway.query.flow.lane import Lane
from gateway.query.flow.letters import letters_of
from gateway.query.flow.referring.loader import RunLoader
from gateway.query.flow.referring.paths import reading_of, why_by_value
from gateway.query.flow.run import Run
from gateway.sources.base import Loaded
from gateway.sources.kafka.partitions import offset_ranges
from gateway.sources.replayed import WithReplays
from infra.messages import AnyMessage, Completed, OffsetRange, Poison, Range
from infra.payload import CodecPolicy, Encoder
from infra.rows.base import DeadRecord, SourceError, SourceUnavailableError
from tests.query.lane_site import Owner
from tests.support.gateway_doubles import INPUT, FakeHost, ManualClock, events, results
from tests.support.query_site import Site
from tests.support.waiting import until

DEAD = DeadRecord(12, 102, "no JSON", b"{", "t/0@102")
START = Position(10, offsets={"t/0": 100, "t/1": 7, "u/0": 3})
END = Position(20, offsets={"t/0": 104, "t/1": 13, "u/0": 3})


class Topic:
    """Has the events of the run from seq 0 to 9: the third record is none, and one offset has no record."""

    def __init__(self) -> None:
        self.reads: list[tuple[Position, Position]] = []
        self.errors: list[Exception] = []

    async def ranges(self, start: Position, end: Position) -> tuple[Range, ...]:
        return offset_ranges(start, end)

    async def read_range(self, start: Position, end: Position) -> Loaded:
        self.reads.append((start, end))
        if self.errors:
            raise self.errors.pop()
        return Loaded(events(0, 7), np.array([0, 1, 3, 4, 5, 6, 7, 9], np.int64), ((2, DEAD),))


class ReferringOwner(Owner):
    def refer(self, first: int = 0) -> Run:
        run = Run(first, first + 9, pa.RecordBatch.from_pylist([], pa.schema([])), 0.0, 900, reference=(START, END))
        self._handle(told.RunLogged(at_s=0.0, run=run))
        return run


def loader_of(topic: Topic) -> RunLoader:
    return RunLoader(cast("WithReplays", topic), ManualClock())


@asynccontextmanager
async def running(
    host: FakeHost, owner: Owner, topic: Topic, *, by_reference: bool, clock: ManualClock | None = None
) -> AsyncIterator[Lane]:
    codecs = CodecPolicy.parse("none")
    loader, encoder, clock = loader_of(topic), Encoder(INPUT, codecs=codecs), clock or ManualClock()
    lane = Lane(host.connection, host.ready, encoder, (), codecs, owner, clock, None, loader, by_reference=by_reference)
    host.connection.listen("q", 1, lane.on_message)
    sender = asyncio.create_task(lane.run())
    owner.open(lane)
    try:
        yield lane
    finally:
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
        await host.connection.close("test over")


def completed(host: FakeHost, poison: tuple[Poison, ...] = (), dead: int = 0) -> None:
    batch = results([0, 1], "home")
    encoded = Encoder(batch.schema, codecs=CodecPolicy.parse("none")).encode(batch)
    message = Completed(
        query="q",
        epoch=1,
        first_seq=0,
        last_seq=9,
        attempt=1,
        rows=2,
        batch_id=1,
        batch_s=0.1,
        poison=poison,
        events=8,
        raw_bytes=4_000,
        dead=dead,
    )
    host.link.say(message, encoded.payload)


async def test_a_host_that_reads_gets_ranges_and_clean_runs_are_never_read_here() -> None:
    host, owner, topic = FakeHost("home"), ReferringOwner(), Topic()
    async with running(host, owner, topic, by_reference=True):
        owner.refer()
        await until(lambda: len(host.runs) == 1)
        (message,) = host.runs
        assert message.ranges == (OffsetRange("t", 0, 100, 104), OffsetRange("t", 1, 7, 13))
        assert (host.payload_of(message), message.rows, message.cost_bytes) == (b"", 10, 900)
        completed(host)
        await until(lambda: len(owner.answers) == 1)
        assert owner.open_runs == 0
    assert topic.reads == []


async def test_a_slow_send_of_ranges_tells_nothing_about_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    host, owner, clock = FakeHost("home"), ReferringOwner(), ManualClock()
    send = host.link.send

    async def slow(message: AnyMessage, payload: bytes = b"") -> None:
        clock.advance(1.0)
        await send(message, payload)

    monkeypatch.setattr(host.link, "send", slow)
    async with running(host, owner, Topic(), by_reference=True, clock=clock):
        for first in (0, 10):
            owner.refer(first)
            await until(lambda first=first: [run.first_seq for run in host.runs][-1:] == [first])  # type: ignore[misc]


async def test_rows_without_a_result_are_told_by_their_seqs_once_the_run_was_read() -> None:
    host, owner, topic = FakeHost("home"), ReferringOwner(), Topic()
    async with running(host, owner, topic, by_reference=True):
        run = owner.refer()
        await until(lambda: len(host.runs) == 1)
        completed(host, (Poison(row=2, reason="bad"), Poison(row=7, reason="worse")), dead=1)
        await until(lambda: len(owner.answers) == 1)
    assert owner.answers[0].poison == ((3, "bad"), (9, "worse")), "the seqs of their offsets"
    assert topic.reads == [(START, END)]
    letters = list(letters_of(owner.answers[0], [run], 0.0))
    assert [letter.reason for letter in letters] == ["no JSON", "bad", "worse"]
    assert [letter.seq for letter in letters] == [2, 3, 9], "its seq tells whether a letter is in the file"


async def test_a_host_that_does_not_read_gets_the_events() -> None:
    host, owner, topic = FakeHost("vm1"), ReferringOwner(), Topic()
    async with running(host, owner, topic, by_reference=False):
        owner.refer()
        await until(lambda: len(host.runs) == 1)
        assert host.rows_of(host.runs[0]) == events(0, 7).to_pylist()
        assert not host.runs[0].ranges


@pytest.mark.parametrize("error", [SourceError("gone"), RuntimeError("a mistake")])
async def test_events_that_cannot_be_read_fail_the_lane(error: Exception) -> None:
    host, owner, topic = FakeHost("home"), ReferringOwner(), Topic()
    topic.errors = [error]
    async with running(host, owner, topic, by_reference=True):
        owner.refer()
        await until(lambda: len(host.runs) == 1)
        completed(host, dead=1)
        await until(lambda: bool(owner.failed))
    assert owner.failed == [("home", f"events without a result are not known: {error}")]
    assert owner.answers == []


async def test_a_run_is_read_once_and_a_broker_that_is_away_is_waited_for() -> None:
    topic, clock = Topic(), ManualClock()
    topic.errors = [SourceUnavailableError("away")]
    loader = RunLoader(cast("WithReplays", topic), clock)
    run = Run(0, 9, pa.RecordBatch.from_pylist([], pa.schema([])), 0.0, 900, reference=(START, END))
    both = asyncio.gather(loader.load(run), loader.load(run))
    while not both.done():
        clock.advance(1.0)
        await asyncio.sleep(0)
    assert len(topic.reads) == 2, "it failed once"
    assert (run.seq_of(2), run.row_of(9), run.events) == (3, 7, 10)


def test_the_size_of_a_run_is_learned_from_those_before() -> None:
    loader = loader_of(Topic())
    before = loader.bytes_of(100)
    for _ in range(60):
        loader.learn(1_000, 50_000)
    loader.learn(0, 0)
    assert before == 100_000
    assert loader.bytes_of(100) == pytest.approx(5_000, rel=0.01)


KAFKA = {"type": "kafka", "brokers": "b:9092", "topics": ["t"]}
LOGIN = {"mechanism": "PLAIN", "user": "me", "password": "secret"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, ""),
        ({"order": {"by": "arrival"}}, ""),
        ({"source": {"type": "file", "path": "in.jsonl", "replay": {"rate": "5/s"}}}, "is replayed"),
        ({"source": {"type": "file", "path": "in.jsonl"}}, ""),
        ({"source": {"type": "file", "path": "in.jsonl.gz"}}, "in.jsonl.gz is compressed"),
        ({"source": {"type": "s3", "bucket": "mails"}}, ""),
        ({"source": {**KAFKA, "tls": {}}}, ""),
        ({"source": {**KAFKA, "sasl": LOGIN}}, "executors would be told without encryption"),
        ({"source": {**KAFKA, "sasl": LOGIN}, "spark": {"conf": {"spark.network.crypto.enabled": True}}}, ""),
        ({"source": {**KAFKA, "sasl": LOGIN}, "spark": {"master": "local[2]"}}, ""),
        ({"event_time": {"column": "at", "lateness": "1s"}, "order": {"by": "at"}}, "ordered by a column"),
    ],
)
def test_a_config_tells_whether_runs_may_come_by_reference(tmp_path: Path, said: dict[str, Any], why: str) -> None:
    for name in ("in.jsonl", "in.jsonl.gz"):
        (tmp_path / name).touch()
    base = {"source": KAFKA, "schema": "id BIGINT, at TIMESTAMP"}
    spark, query = said.get("spark", {}), {key: value for key, value in said.items() if key != "spark"}
    config = Site(tmp_path).config(**{**base, **query}).queries["q"]
    private = PrivateConfig.model_validate({"data_path": "reference", "spark": {"master": "spark://a:7077", **spark}})
    assert why in why_by_value(config, private.spark)
    assert bool(why_by_value(config, private.spark)) is bool(why)
    assert (reading_of(config, private) is None) is bool(why)
    assert reading_of(config, PrivateConfig()) is None
