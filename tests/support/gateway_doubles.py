"""Stand-ins for the gateway's tests: a clock that the test moves, and a link whose far end is the test."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from gateway.hosts.connection import Connection
from gateway.query.flow.lane import Lane, LaneOwner
from gateway.sinks.base import BlockingSink
from gateway.sinks.threaded import ThreadedSink
from infra.clock import Clock
from infra.link.channel import LinkLost
from infra.link.client import HostLink, LinkStats
from infra.messages import (
    AnyMessage,
    Completed,
    Credit,
    HostEnding,
    Poison,
    Predicate,
    QueryPlan,
    QueryReady,
    RunMessage,
)
from infra.payload import CodecPolicy, Decoder, Encoder
from tests.support.waiting import until


class ManualClock:
    """A clock that stands until ``advance``; a task that sleeps until before the new time continues."""

    def __init__(self, now_s: float = 1000.0, wall_s: float = 1_700_000_000.0) -> None:
        self._now_s = now_s
        self._wall_offset_s = wall_s - now_s
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now_s

    def wall(self) -> float:
        return self._now_s + self._wall_offset_s

    @property
    def sleeper_count(self) -> int:
        """How many tasks sleep; tests wait for one before they move time."""
        return sum(not sleeper.done() for _, sleeper in self._sleepers)

    @property
    def next_wake_s(self) -> float | None:
        return min((at_s for at_s, sleeper in self._sleepers if not sleeper.done()), default=None)

    def advance(self, by_s: float) -> None:
        self._now_s += by_s
        for at_s, sleeper in self._sleepers:
            if at_s <= self._now_s and not sleeper.done():
                sleeper.set_result(None)
        self._sleepers = [(at_s, sleeper) for at_s, sleeper in self._sleepers if not sleeper.done()]

    async def sleep_until(self, at_s: float) -> None:
        if at_s <= self._now_s:
            await asyncio.sleep(0)
            return
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((at_s, sleeper))
        await sleeper


class FakeLink:
    """The gateway's end of a link whose other end is the test: ``sent`` holds its messages, ``say`` answers."""

    def __init__(self, *, ready: bool = True) -> None:
        self.hello = SimpleNamespace(ready=ready, reclaimed_in_s=None, tables=())
        self.stats = LinkStats()
        self.sent: list[tuple[AnyMessage, bytes]] = []
        self.closed_with: str | None = None
        self.open = asyncio.Event()  # cleared, a send waits as on a full socket
        self.open.set()
        self._inbox: asyncio.Queue[tuple[AnyMessage, bytes] | LinkLost] = asyncio.Queue()
        self._lost: LinkLost | None = None

    async def send(self, message: AnyMessage, payload: bytes = b"") -> None:
        await self.open.wait()
        if self._lost is not None:
            raise self._lost
        self.sent.append((message, bytes(payload)))

    async def receive(self) -> tuple[AnyMessage, bytes]:
        item = await self._inbox.get()
        if isinstance(item, LinkLost):
            raise item
        return item

    async def close(self, reason: str) -> None:
        self.closed_with = self.closed_with or reason
        self.lose(reason)
        for _ in range(10):  # a goodbye takes its time, in which whoever watches the link hears of its end
            await asyncio.sleep(0)

    def say(self, message: AnyMessage, payload: bytes = b"") -> None:
        self._inbox.put_nowait((message, payload))

    def lose(self, reason: str) -> None:
        self._lost = self._lost or LinkLost(reason)
        self.open.set()
        self._inbox.put_nowait(self._lost)


async def all_heard(connection: Connection, link: FakeLink) -> None:
    """Return once everything that the far end has sent so far is processed; later messages arrive normally."""
    last = (f"word {next(_LAST_WORDS)}",)
    link.say(HostEnding(suspects=last))
    await until(lambda: connection.suspects == last, what=f"{connection.name} is heard")


_LAST_WORDS = count(1)
INPUT = pa.schema([("id", pa.int64()), ("text", pa.string())])
RESULT = pa.schema([("id", pa.int64()), ("lane", pa.string())])


def events(first: int, last: int) -> pa.RecordBatch:
    """Events whose id is their seq."""
    ids = list(range(first, last + 1))
    return pa.RecordBatch.from_pylist([{"id": i, "text": f"event {i}"} for i in ids], schema=INPUT)


def results(ids: Sequence[int], lane: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": i, "lane": lane} for i in ids], schema=RESULT)


def opened(sink: BlockingSink) -> ThreadedSink:
    """A sink that was opened before, so that a test may examine it too."""
    return ThreadedSink(lambda: sink, opened=sink)


class FakeHost:
    """An engine host that the test controls: sees decoded runs, answers when the test says so."""

    def __init__(
        self,
        name: str,
        *,
        credit_bytes: int = 1 << 20,
        predicates: tuple[Predicate, ...] = (),
        resume_end_seq: int = 0,
        schema: pa.Schema = INPUT,
    ) -> None:
        self.name = name
        self._schema = schema
        self._resume_end_seq = resume_end_seq
        self.link = FakeLink()
        self.connection = Connection(name, cast("HostLink", self.link))
        self._credit_bytes = credit_bytes
        self._predicates = predicates
        self._decoder = Decoder(schema)
        self._encoder = Encoder(RESULT, codecs=CodecPolicy.parse("none"))
        self._batches = 0

    @property
    def ready(self) -> QueryReady:
        return QueryReady(
            query="q",
            epoch=1,
            input_schema=INPUT.serialize().to_pybytes(),
            result_schema=RESULT.serialize().to_pybytes(),
            plan=QueryPlan(switch_class="stateless", switchable=True, narrow=True),
            credit_bytes=self._credit_bytes,
            resume_end_seq=self._resume_end_seq,
        )

    def lane(self, owner: LaneOwner, clock: Clock) -> Lane:
        codecs = CodecPolicy.parse("none")
        encoder = Encoder(self._schema, predicates=self._predicates, codecs=codecs)
        lane = Lane(self.connection, self.ready, encoder, self._predicates, codecs, owner, clock)
        self.connection.listen("q", 1, lane.on_message)
        return lane

    @property
    def _epoch(self) -> int:
        return self.runs[-1].epoch if self.runs else 1

    @property
    def runs(self) -> list[RunMessage]:
        """The runs that came, in order."""
        return [message for message, _ in self.link.sent if isinstance(message, RunMessage)]

    def payload_of(self, run: RunMessage) -> bytes:
        return next(payload for message, payload in self.link.sent if message is run)

    def rows_of(self, run: RunMessage) -> list[dict[str, Any]]:
        return self.decoded(self.payload_of(run))

    def decoded(self, payload: bytes) -> list[dict[str, Any]]:
        """The rows of a run's payload; each is decoded once, in the order in which they came."""
        rows: list[dict[str, Any]] = self._decoder.decode(payload).to_pylist()
        return rows

    async def all_heard(self) -> None:
        """See ``all_heard``."""
        await all_heard(self.connection, self.link)

    def answer(
        self,
        first: int,
        last: int,
        ids: Sequence[int] | None = None,
        poison: Sequence[Poison] = (),
        *,
        payload: bytes | None = None,
        too_late: int = 0,
        open_groups: int | None = None,
        late: bytes = b"",
        watermark_ms: int = 0,
    ) -> None:
        """Complete the run (or runs) of these seqs with one row for each of ``ids``, by default all.

        ``payload`` replaces the encoded rows.
        """
        batch = results(range(first, last + 1) if ids is None else ids, self.name)
        self._batches += 1
        message = Completed(
            query="q",
            epoch=self._epoch,
            first_seq=first,
            last_seq=last,
            attempt=1,
            rows=batch.num_rows,
            batch_id=self._batches,
            batch_s=0.1,
            poison=tuple(poison),
            too_late=too_late,
            open_groups=open_groups,
            late=late,
            watermark_ms=watermark_ms,
        )
        encoded = self._encoder.encode(batch).payload
        self.link.say(message, encoded if payload is None else payload)

    def consume(self, run: RunMessage) -> None:
        """Return the credit of a run."""
        self.link.say(Credit(query="q", epoch=run.epoch, bytes=len(self.payload_of(run))))
