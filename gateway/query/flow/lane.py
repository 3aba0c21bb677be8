"""The shell of one lane of a query: encodes runs, sends them to a host, and receives the host's messages.

It keeps no runs. The exchange decides which run it gets, when it is sent, and whether its answer is late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

import gateway.core.exchange.events as ev
from gateway.core.exchange import LaneView
from gateway.core.exchange.instructions import Pack, Send
from gateway.hosts.connection import Connection
from gateway.query.flow.referring.loader import RunLoader
from gateway.query.flow.run import Run
from infra.clock import Clock
from infra.link.channel import LinkLost
from infra.link.client import LinkStats
from infra.messages import (
    Completed,
    Credit,
    Dictionary,
    DirectProgress,
    IsolatingMessage,
    Predicate,
    QueryFailed,
    QueryReady,
    RunMessage,
)
from infra.payload import CodecPolicy, Decoder, Encoded, Encoder, kept_rows
from infra.payload.caching import CachingEncoder
from infra.payload.sealing import UnsealableSeal, unsealed

# If a send took longer than this, the link delayed it, so its time shows the link's rate.
_HELD_BACK_S = 0.02
_LINK_WEIGHT = 0.2
NO_BATCH = -1

LaneEvent: TypeAlias = ev.Packed | ev.Sent | ev.Isolating | ev.Credited


@dataclass(frozen=True, slots=True)
class Answer:
    """A host's completion: the results of the runs from ``first_seq`` to ``last_seq``."""

    lane: str
    first_seq: int
    last_seq: int
    results: pa.RecordBatch
    poison: tuple[tuple[int, str], ...]
    """(seq, reason) of each event that fails the query by itself."""
    batch_id: int
    batch_s: float
    too_late: int = 0
    """Rows or groups that were dropped because they were behind the watermark."""
    open_groups: int | None = None
    """Rows of state that wait for the watermark; None if that is unknown, or there is none."""
    late: tuple[int, ...] = ()
    """Seqs of events that came too late and had no effect, if the query keeps them."""
    watermark_ms: int = 0
    """What was not after this watermark came too late; ms since 1970."""


class LaneOwner(Protocol):
    """Receives the events of a lane."""

    def on_event(self, event: LaneEvent) -> None:
        """Report an event to the exchange."""
        ...

    def view(self, lane: str) -> LaneView | None:
        """Return the exchange's view of a lane, if it is open."""
        ...

    def asked(self, lane: str, first_seq: int, last_seq: int) -> Sequence[Run]:
        """Return the runs of a range that were dispatched to a lane and are not done."""
        ...

    def on_answer(self, answer: Answer) -> None:
        """Note that runs are completed."""
        ...

    def on_broken(self, reason: str, exhausted: bool) -> None:
        """Note that the query itself is at fault, in every lane; or that it ``exhausted`` a host that it shares."""
        ...

    def on_failed(self, lane: str, reason: str) -> None:
        """Note that the query has failed in this lane."""
        ...


class Lane:
    """A lane of one query.

    Args:
        connection: to the host on which the query is open.
        ready: the host's answer when it was opened.
        encoder: packs runs for this lane.
        predicates: the row conditions that ``encoder`` applies.
        codecs: how ``encoder`` packs; gets the link's measured rate.
        owner: receives the lane's events.
        clock: time.
        seals: of the result columns that come back sealed.
        loader: reads the events of runs by reference, if there are such runs.
        by_reference: whether the host reads the events of these runs by itself.

    Attributes:
        owner: receives the lane's events.
    """

    def __init__(
        self,
        connection: Connection,
        ready: QueryReady,
        encoder: Encoder | CachingEncoder,
        predicates: tuple[Predicate, ...],
        codecs: CodecPolicy,
        owner: LaneOwner,
        clock: Clock,
        seals: Mapping[str, UnsealableSeal] | None = None,
        loader: RunLoader | None = None,
        *,
        by_reference: bool = False,
    ) -> None:
        self.name = connection.name
        self.connection = connection
        self.credit_bytes = ready.credit_bytes
        self.planned_end_seq = ready.resume_end_seq
        self._query, self._epoch = ready.query, ready.epoch
        self._encoder = encoder
        self._predicates = predicates
        self._codecs = codecs
        self._result_schema = pa.ipc.read_schema(pa.py_buffer(ready.result_schema))
        self._decoder = Decoder(self._result_schema)
        self._seals = seals or {}
        self._loader, self._by_reference = loader, by_reference
        self._settling: set[asyncio.Task[None]] = set()
        self.owner = owner
        self._clock = clock
        self._orders: asyncio.Queue[Pack[Run] | Send] = asyncio.Queue()
        self._closed = False
        self._link_rate: float | None = None

    @property
    def link(self) -> LinkStats:
        """The measurements of the link to the host."""
        return self.connection.link.stats

    @property
    def choices(self) -> dict[str, str]:
        """The present codec of each field."""
        return dict(self._encoder.choices())

    @property
    def open_runs(self) -> int:
        """How many runs are in the lane and not answered."""
        view = self.owner.view(self.name)
        return 0 if view is None else view.open_runs

    @property
    def waiting_s(self) -> float | None:
        """How long the lane has had work and got no answer; None while it has no work."""
        view = self.owner.view(self.name)
        return None if view is None else view.waiting_s(self._clock.now())

    # ------------------------------------------------------------------------------------------------ to the host

    def order(self, what: Pack[Run] | Send) -> None:
        """Accept an instruction of the exchange, which gives the next one when this one is done."""
        self._orders.put_nowait(what)

    def close(self) -> None:
        """Report nothing more: the lane is removed."""
        self._closed = True
        for task in self._settling:
            task.cancel()

    async def run(self) -> None:
        """Carry out instructions until the link is lost."""
        payload = b""
        try:
            while True:
                match await self._orders.get():
                    case Pack(run=run, attempt=attempt) if self._refers(run):
                        message, payload = await self._reference(run, attempt), b""
                    case Pack(run=run, attempt=attempt):
                        encoded = await self._pack(run)
                        message, payload = self._message(run, attempt, encoded.rows), encoded.payload
                    case Send():
                        await self._send(message, payload)
        except LinkLost:
            return  # the task that watches the connection removes the lane, and its runs go elsewhere

    def _refers(self, run: Run) -> bool:
        return self._by_reference and run.reference is not None

    async def _reference(self, run: Run, attempt: int) -> RunMessage:
        """Return the message of a run whose events the host reads."""
        assert self._loader is not None, "a query with runs by reference has a loader"
        ranges = await self._loader.ranges(run)
        packed = ev.Packed(
            at_s=self._clock.now(),
            lane=self.name,
            first_seq=run.first_seq,
            raw_bytes=run.raw_bytes,
            payload_bytes=run.raw_bytes,
            rows=run.events,
        )
        self._report(packed)
        message = self._message(run, attempt, run.events)
        return msgspec.structs.replace(message, ranges=ranges, cost_bytes=run.raw_bytes)

    async def _load(self, run: Run) -> None:
        if not run.loaded:
            assert self._loader is not None, "a query with runs by reference has a loader"
            await self._loader.load(run)

    async def _pack(self, run: Run) -> Encoded:
        await self._load(run)
        encoded = await asyncio.to_thread(self._encoded, run)
        for new in encoded.dictionaries:
            message = Dictionary(query=self._query, field=new.field, dictionary_id=new.dictionary_id)
            await self.connection.link.send(message, new.data)
        self._report(
            ev.Packed(
                at_s=self._clock.now(),
                lane=self.name,
                first_seq=run.first_seq,
                raw_bytes=encoded.raw_bytes,
                payload_bytes=len(encoded.payload),
                rows=encoded.rows,
            )
        )
        if encoded.rows == 0 and self.owner.asked(self.name, run.first_seq, run.last_seq):
            # No row of it passes the early predicates: the answer is known without the host.
            nothing = pa.RecordBatch.from_pylist([], schema=self._result_schema)
            self._take(Answer(self.name, run.first_seq, run.last_seq, nothing, (), NO_BATCH, 0.0))
        return encoded

    def _encoded(self, run: Run) -> Encoded:
        if not isinstance(self._encoder, CachingEncoder):
            return self._encoder.encode(run.batch)
        assert run.selected is not None
        return self._encoder.encode(run.batch, run.selected, run.open_from)

    def _message(self, run: Run, attempt: int, rows: int) -> RunMessage:
        return RunMessage(
            query=self._query,
            epoch=self._epoch,
            first_seq=run.first_seq,
            last_seq=run.last_seq,
            attempt=attempt,
            rows=rows,
        )

    async def _send(self, message: RunMessage, payload: bytes) -> None:
        started_s = self._clock.now()
        await self.connection.link.send(message, payload)
        if isinstance(self._encoder, CachingEncoder):
            self._encoder.sent()
        now_s = self._clock.now()
        took_s = now_s - started_s
        self._report(ev.Sent(at_s=now_s, lane=self.name, first_seq=message.first_seq, took_s=took_s))
        self._learn_link_rate(len(payload), took_s)

    def _learn_link_rate(self, sent_bytes: int, took_s: float) -> None:
        """Pass the link's rate to the encoder, so that ``auto`` can weigh bytes against CPU time."""
        if took_s < _HELD_BACK_S or not sent_bytes:
            return  # ranges are no load
        rate = sent_bytes / took_s
        self._link_rate = rate if self._link_rate is None else self._link_rate + _LINK_WEIGHT * (rate - self._link_rate)
        self._codecs.link_rate(self._link_rate)

    # ---------------------------------------------------------------------------------------------- from the host

    def on_message(
        self, message: Completed | Credit | IsolatingMessage | QueryFailed | DirectProgress, payload: bytes
    ) -> None:
        """Process a message of the host about this query."""
        if self._closed:
            return  # its runs were dispatched elsewhere
        now_s = self._clock.now()
        match message:
            case Credit():
                self._report(ev.Credited(at_s=now_s, lane=self.name, consumed_bytes=message.bytes))
            case IsolatingMessage():
                self._report(ev.Isolating(at_s=now_s, lane=self.name, first_seq=message.first_seq))
            case QueryFailed() if message.broken or message.exhausted:
                self.owner.on_broken(message.reason, message.exhausted)
            case QueryFailed():
                self.owner.on_failed(self.name, message.reason)
            case Completed() if message.events is not None:
                self._settle(message, payload)
            case Completed():
                self._take(self._answer(message, payload))

    def _settle(self, message: Completed, payload: bytes) -> None:
        """Take the answer to a run by reference; its events are read if some of them have no result."""
        assert self._loader is not None
        assert message.events is not None
        self._loader.learn(message.events, message.raw_bytes)
        if not (message.poison or message.dead):
            self._take(self._answer(message, payload))
            return
        task = asyncio.create_task(self._settled(message, payload), name=f"{self._query}: rows without a result")
        self._settling.add(task)
        task.add_done_callback(self._settling_ended)

    async def _settled(self, message: Completed, payload: bytes) -> None:
        for run in self.owner.asked(self.name, message.first_seq, message.last_seq):
            await self._load(run)
        self._take(self._answer(message, payload))

    def _settling_ended(self, task: asyncio.Task[None]) -> None:
        self._settling.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.owner.on_failed(self.name, f"events without a result are not known: {error}")

    def _answer(self, message: Completed, payload: bytes) -> Answer:
        first, last = message.first_seq, message.last_seq
        kept = self._kept_seqs(first, last) if message.poison or message.late else []
        late = np.flatnonzero(np.unpackbits(np.frombuffer(message.late, np.uint8))).tolist() if kept else []
        poison = message.poison if kept else ()
        if any(not 0 <= row < len(kept) for row in (*late, *(bad.row for bad in poison))):
            raise ValueError(f"a row without a result is not among the {len(kept)} rows of the runs from {first}")
        return Answer(
            self.name,
            first,
            last,
            unsealed(self._decoder.decode(payload), self._seals),
            tuple((seq, bad.reason) for bad in poison if (seq := kept[bad.row]) is not None),
            message.batch_id,
            message.batch_s,
            message.too_late,
            message.open_groups,
            tuple(seq for row in late if (seq := kept[row]) is not None),
            message.watermark_ms,
        )

    def _report(self, event: LaneEvent) -> None:
        if not self._closed:
            self.owner.on_event(event)

    def _take(self, answer: Answer) -> None:
        if not self._closed:
            self.owner.on_answer(answer)

    def _kept_seqs(self, first_seq: int, last_seq: int) -> list[int | None]:
        """Return the seqs of the rows that were sent with the runs of an answer; none if it is not wanted any more.

        A heartbeat has none: it is an event of another part, which reports it.
        """
        runs = self.owner.asked(self.name, first_seq, last_seq)
        return [run.seq_of(int(row)) for run in runs for row in kept_rows(run.batch, self._predicates)]
