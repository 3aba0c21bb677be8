"""One query that is open on a host, for the gateway session that owns it: frames in, frames out."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engines.direct.stream import DirectStream
from engines.query.known import KnownQuery, RefusedError
from engines.query.selections.expansion import expanded, numbers_in
from engines.reading.references import row_of
from engines.streaming.activity import Activity
from engines.streaming.answers import RunOutcome
from engines.streaming.checkpoints import ResumePoint
from engines.streaming.feed import FeedClosed, Item, pack, stream_of
from infra.link.credit import CREDIT_BYTES
from infra.messages import (
    AnyMessage,
    Completed,
    Credit,
    Dictionary,
    DirectProgress,
    IsolatingMessage,
    Poison,
    QueryFailed,
    RunMessage,
)
from infra.payload.caching import CachingDecoder
from infra.payload.codecs.policy import CodecPolicy
from infra.payload.decoder import Decoder
from infra.payload.encoder import Encoder
from infra.payload.errors import PayloadError

_log = logging.getLogger("spillway.host")

_RUNS_WAITING = 4096

SendMessage = Callable[[str, AnyMessage, bytes], Awaitable[bool]]


@dataclass(frozen=True, eq=False)
class Owner:
    """The gateway session that a query belongs to; answers go to it as long as it is the present one."""

    session: str
    epoch: int


@dataclass(frozen=True, eq=False)
class Ticket:
    """The data that is needed to answer a run.

    Attributes:
        owner: who sent it.
        run: its message.
        cost_bytes: what it counts against the credit.
        rows: if it has selections: of which of its rows each row that Spark gets is a copy.
        selections: the numbers of the first and the last of them, if it has any.
    """

    owner: Owner
    run: RunMessage
    cost_bytes: int
    rows: npt.NDArray[np.int64] | None = None
    selections: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Frame:
    """An answer on its way to its owner."""

    owner: Owner
    completed: Completed
    payload: bytes
    tickets: Sequence[Ticket]


class Engine(Protocol):
    """A started query: stateless or stateful."""

    @property
    def query(self) -> KnownQuery:
        """Return the query."""
        ...

    @property
    def progress(self) -> ResumePoint:
        """Return where the query continued when it was opened."""
        ...

    @property
    def activity(self) -> Activity:
        """Return the record of Spark's work for it."""
        ...

    def put(self, parts: Sequence[pa.Buffer], tag: object, first_seq: int, end_seq: int) -> None:
        """Append a run; blocks while the feed is full. Raises FeedClosed, or ValueError if it is not the next."""
        ...

    def put_ranges(self, parts: Sequence[pa.Buffer], tag: object) -> None:
        """Append a run by reference, as ``put`` does."""
        ...

    def drop_waiting(self) -> None:
        """Drop the runs of an earlier owner that are not in a micro-batch yet."""
        ...

    @property
    def death(self) -> str:
        """Return why it ended; empty while it lives."""
        ...

    @property
    def by_reference(self) -> bool:
        """Return whether its runs may come by reference."""
        ...

    @property
    def can_change_owner(self) -> bool:
        """Return whether it lives and another session may continue with it."""
        ...

    def committed(self, last_seq: int) -> None:
        """Note that the sink holds all results up to and including ``last_seq``."""
        ...

    def close(self) -> None:
        """Stop it."""
        ...


class Opened:
    """A query and its present owner.

    Runs are decoded in order of arrival, on a thread of this query, so that a slow query delays no other.

    Args:
        loop: the event loop of ``send``.
        send: the link's method; it returns False when the session is gone.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, send: SendMessage) -> None:
        self._loop = loop
        self._send = send
        self._threads = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="intake")
        self._sending: concurrent.futures.Future[None] | None = None
        self._answering = threading.Lock()
        self._owner: Owner | None = None
        self._unconsumed_bytes = 0
        self._waiting = 0
        self._engine: Engine | None = None

    def begin(self, engine: Engine) -> None:
        """Accept a started engine; it has no owner yet."""
        self._engine = engine
        self._decoder = _decoder_of(engine.query)
        self._encoder = Encoder(engine.query.result_schema, codecs=CodecPolicy(engine.query.spec.result_codec))

    @property
    def activity(self) -> Activity | None:
        """Return the record of Spark's work for the query; None before it runs and after it was closed."""
        return None if self._engine is None else self._engine.activity

    @property
    def by_reference(self) -> bool:
        """Return whether runs may come by reference."""
        return self._engine is not None and self._engine.by_reference

    def can_serve(self, query: KnownQuery) -> bool:
        """Return whether the running query equals this one, lives, and may be assigned to another session."""
        engine = self._engine
        return engine is not None and engine.can_change_owner and _same(engine.query, query)

    def attach(self, owner: Owner) -> None:
        """Assign the query to an owner, who sends its dictionaries again; drop what an earlier owner sent.

        Raises:
            RefusedError: it has failed already; a later failure is reported to the owner.
        """
        engine = self._engine
        assert engine is not None
        self._decoder = _decoder_of(engine.query)
        self._unconsumed_bytes = self._waiting = 0
        self._owner = owner
        if engine.death:
            raise RefusedError(f"query {engine.query.spec.query}: {engine.death}")

    def detach(self) -> None:
        """Remove the owner: nothing more is answered."""
        self._owner = None
        if self._engine is not None:
            self._engine.drop_waiting()

    def committed(self, last_seq: int) -> None:
        """Tell a stateful engine which results the sink holds."""
        if self._engine is not None:
            self._engine.committed(last_seq)

    def is_owned_by(self, session: str, epoch: int) -> bool:
        """Return whether messages of this session and epoch belong to the query that runs now."""
        return self._owner is not None and (self._owner.session, self._owner.epoch) == (session, epoch)

    def take_run(self, run: RunMessage, payload: bytes) -> None:
        """Queue a run for Spark; fail the query if the gateway exceeds its credit."""
        owner, decoder = self._owner, self._decoder
        assert owner is not None
        cost_bytes = len(payload) + run.cost_bytes
        over = self._unconsumed_bytes and self._unconsumed_bytes + cost_bytes > CREDIT_BYTES
        if over or self._waiting >= _RUNS_WAITING:
            self._fail(
                owner, f"{self._waiting} runs of {self._unconsumed_bytes} bytes wait: the gateway exceeded its credit"
            )
            return
        self._unconsumed_bytes += cost_bytes
        self._waiting += 1
        self._threads.submit(self._put, decoder, Ticket(owner, run, cost_bytes), payload)

    def take_dictionary(self, message: Dictionary, payload: bytes) -> None:
        """Add a dictionary for the runs after it."""
        owner, decoder = self._owner, self._decoder
        if owner is not None:
            self._threads.submit(self._add_dictionary, owner, decoder, message, payload)

    def answer(self, answers: Sequence[RunOutcome]) -> None:
        """Send the outcome of runs; any thread may call, which is at most one answer ahead of the link."""
        with self._answering:
            owner = self._owner
            mine = [answer for answer in answers if owner is not None and answer.items[0].tag.owner is owner]
            frames = [self._frame(answer) for answer in mine]
            before, self._sending = self._sending, asyncio.run_coroutine_threadsafe(self._deliver(frames), self._loop)
        if before is not None:
            before.result()

    def isolating(self, items: Sequence[Item]) -> None:
        """Report to the owner which runs are being isolated; any thread may call."""
        owner = self._owner
        mine: list[Ticket] = [item.tag for item in items if owner is not None and item.tag.owner is owner]
        for ticket in mine:
            run = ticket.run
            message = IsolatingMessage(query=run.query, epoch=run.epoch, first_seq=run.first_seq)
            asyncio.run_coroutine_threadsafe(self._notify(ticket.owner, message), self._loop)

    def died(self, reason: str) -> None:
        """Report to the owner that the query has failed; any thread may call."""
        self._loop.call_soon_threadsafe(self._fail, self._owner, reason)

    def tell(self, progress: DirectProgress) -> None:
        """Report to the owner how far a query is that reads by itself; any thread may call."""
        owner = self._owner
        if owner is not None:
            asyncio.run_coroutine_threadsafe(self._notify(owner, progress), self._loop)

    def broken(self, reason: str) -> None:
        """Report to the owner that the query itself is at fault, so that it fails everywhere; any thread may call."""
        self._loop.call_soon_threadsafe(partial(self._fail, self._owner, reason, broken=True))

    def exhausted(self, reason: str) -> None:
        """Report to the owner that the query needs a host of its own; any thread may call."""
        self._loop.call_soon_threadsafe(partial(self._fail, self._owner, reason, exhausted=True))

    def close(self, *, after_batch: bool = False) -> None:
        """Stop the query; return when it has ended.

        ``after_batch``: if it is carried by Spark, its present micro-batch ends first.
        """
        engine, self._engine = self._engine, None
        if not isinstance(engine, DirectStream):
            self._owner = None
        elif after_batch:
            engine.finish_batch()
        if engine is not None:
            engine.close()
        self._owner = None
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _put(self, decoder: Decoder | CachingDecoder, ticket: Ticket, payload: bytes) -> None:
        engine = self._engine
        if ticket.owner is not self._owner or engine is None:
            return
        run = ticket.run
        try:
            if run.ranges:
                engine.put_ranges([stream_of(row_of(each)) for each in run.ranges], ticket)
                return
            rows = decoder.decode(payload)
            if (rule := engine.query.spec.selections) is not None:
                rows, copied = expanded(rows, rule)
                ticket = replace(ticket, rows=copied, selections=numbers_in(rows))
            engine.put(pack(rows), ticket, run.first_seq, run.last_seq + 1)
        except PayloadError as error:
            self.died(f"run {run.first_seq}-{run.last_seq} cannot be decoded: {error}")
        except ValueError as error:
            self.died(str(error))
        except FeedClosed:
            return  # the caller of close has notified the owner

    def _add_dictionary(
        self, owner: Owner, decoder: Decoder | CachingDecoder, message: Dictionary, payload: bytes
    ) -> None:
        try:
            decoder.add_dictionary(message.field, message.dictionary_id, payload)
        except PayloadError as error:
            if owner is self._owner:
                self.died(f"dictionary {message.dictionary_id}: {error}")

    def _frame(self, answer: RunOutcome) -> _Frame:
        encoded = self._encoder.encode(answer.rows)
        tickets: list[Ticket] = [item.tag for item in answer.items]
        first, last = tickets[0].run, tickets[-1].run
        counts = answer.items[0].counts
        completed = Completed(
            query=first.query,
            epoch=first.epoch,
            first_seq=first.first_seq,
            last_seq=last.last_seq,
            attempt=last.attempt,
            rows=encoded.rows,
            batch_id=answer.batch_id,
            batch_s=answer.batch_s,
            poison=_of_run(answer.poison, tickets[0].rows),
            too_late=answer.state.too_late,
            open_groups=answer.state.open_groups,
            late=answer.late.bits(),
            watermark_ms=answer.late.watermark_ms,
            events=None if counts is None else counts.events,
            raw_bytes=0 if counts is None else counts.raw_bytes,
            dead=0 if counts is None else counts.dead,
        )
        return _Frame(tickets[0].owner, completed, encoded.payload, tickets)

    async def _deliver(self, frames: Sequence[_Frame]) -> None:
        for frame in frames:
            session = frame.owner.session
            if frame.owner is not self._owner:
                return
            try:
                sent = await self._send(session, frame.completed, frame.payload)
            except ValueError as error:
                self._fail(frame.owner, f"the results of run {frame.completed.first_seq} cannot be sent: {error}")
                return
            if not sent:
                return
            consumed_bytes = sum(ticket.cost_bytes for ticket in frame.tickets)
            self._unconsumed_bytes -= consumed_bytes
            self._waiting -= len(frame.tickets)
            credit = Credit(query=frame.completed.query, epoch=frame.owner.epoch, bytes=consumed_bytes)
            await self._send(session, credit, b"")

    def _fail(self, owner: Owner | None, reason: str, *, broken: bool = False, exhausted: bool = False) -> None:
        if owner is None or owner is not self._owner or self._engine is None:
            return
        _log.warning("query %s failed: %s", self._engine.query.spec.query, reason)
        query = self._engine.query.spec.query
        failed = QueryFailed(query=query, epoch=owner.epoch, reason=reason, broken=broken, exhausted=exhausted)
        self._owner = None
        self._loop.create_task(self._notify(owner, failed))

    async def _notify(self, owner: Owner, message: QueryFailed | IsolatingMessage | DirectProgress) -> None:
        await self._send(owner.session, message, b"")


def _of_run(poison: tuple[Poison, ...], copied: npt.NDArray[np.int64] | None) -> tuple[Poison, ...]:
    """Return the rows at fault as those of the run; a row that several selections have is named once."""
    if copied is None:
        return poison
    reasons: dict[int, str] = {}
    for bad in poison:
        reasons.setdefault(int(copied[bad.row]), bad.reason)
    return tuple(Poison(row=row, reason=reason) for row, reason in sorted(reasons.items()))


def _decoder_of(query: KnownQuery) -> Decoder | CachingDecoder:
    return Decoder(query.sent_schema) if query.spec.selections is None else CachingDecoder(query.sent_schema)


def _same(one: KnownQuery, other: KnownQuery) -> bool:
    as_one = msgspec.structs.replace(one.spec, epoch=other.spec.epoch)
    return as_one == other.spec and one.code_hash == other.code_hash
