"""One way to process the runs of one query: encodes and sends them to a host, and takes the answers."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from gateway.hosts.connection import Connection
from gateway.query.flow.runbook import Run
from infra.clock import Clock
from infra.link.channel import LinkLost
from infra.link.client import LinkStats
from infra.link.credit import CreditWindow
from infra.messages import Completed, Credit, Dictionary, Isolating, Predicate, QueryFailed, QueryReady
from infra.messages import Run as RunMessage
from infra.payload import CodecPolicy, Decoder, Encoded, Encoder, kept_rows
from policies.failures.overdue import LaneWatch, Patience

# A lane gets as many events as it can serve in this time: enough to keep the engine busy while it plans its next
# micro-batch and a round trip passes, and not more, since what a lane holds can no longer be switched.
_HORIZON_S = 1.5
_LEAST_RUNS = 2
# What is left of a slot's weight in the service rate one slot later: a micro-batch may last longer than a slot.
_RATE_MEMORY = 0.8
# A send that took longer than this was held back by the link, and then tells what the link carries.
_HELD_BACK_S = 0.02
_LINK_WEIGHT = 0.2
NO_BATCH = -1


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion as the receiver takes it: results of the runs from ``first_seq`` to ``last_seq``."""

    lane: str
    first_seq: int
    last_seq: int
    results: pa.RecordBatch
    poison: tuple[tuple[int, str], ...]
    """(seq, reason) of each event that fails the query by itself."""
    batch_id: int
    batch_s: float


class LaneOwner(Protocol):
    """Who hears what happens in a lane."""

    def on_answer(self, answer: Answer) -> None:
        """Runs are completed."""
        ...

    def on_sent(self, lane: str, run: Run, raw_bytes: int, sent_bytes: int) -> None:
        """A run is on its way."""
        ...

    def on_room(self) -> None:
        """The lane may take another run."""
        ...

    def on_isolating(self, lane: str, first_seq: int) -> None:
        """The host looks for bad rows in a run, which says nothing of what the lane can serve."""
        ...

    def on_broken(self, reason: str) -> None:
        """The query itself is at fault, in whatever lane."""
        ...

    def on_failed(self, lane: str, reason: str) -> None:
        """The query cannot go on in this lane."""
        ...


class Lane:
    """A lane of one query.

    Args:
        connection: to the host, on which the query has been opened.
        ready: the host's answer to that.
        encoder: packs runs for this lane.
        predicates: the row conditions that ``encoder`` applies.
        codecs: how ``encoder`` packs; hears what the link carries.
        owner: hears of answers.
        clock: time.
        patience: how long answers are waited for.
    """

    def __init__(
        self,
        connection: Connection,
        ready: QueryReady,
        encoder: Encoder,
        predicates: tuple[Predicate, ...],
        codecs: CodecPolicy,
        owner: LaneOwner,
        clock: Clock,
        patience: Patience,
    ) -> None:
        self.name = connection.name
        self._connection = connection
        self._query, self._epoch = ready.query, ready.epoch
        self._encoder = encoder
        self._predicates = predicates
        self._codecs = codecs
        self._decoder = Decoder(pa.ipc.read_schema(pa.py_buffer(ready.result_schema)))
        self._result_schema = pa.ipc.read_schema(pa.py_buffer(ready.result_schema))
        self._owner = owner
        self._clock = clock
        self._credit = CreditWindow(ready.credit_bytes)
        self._planned_end_seq = ready.resume_end_seq
        self._open: dict[int, Run] = {}
        self._isolating: set[int] = set()
        self._isolating_since_s: float | None = None
        self._isolated_s = 0.0
        self._queue: deque[Run] = deque()
        self._work = asyncio.Event()
        self._busy_since_s: float | None = None
        self._busy_s = 0.0
        self._served_events = 0.0
        self._link_rate: float | None = None
        self._watch = LaneWatch(patience)
        self._overdue: dict[int, Run] = {}
        self._held_back = False

    @property
    def open_events(self) -> int:
        """Events that are in this lane."""
        return sum(run.events for run in self._open.values())

    @property
    def idle(self) -> bool:
        """Whether nothing is in this lane."""
        return not self._open

    @property
    def _served(self) -> list[Run]:
        """The open runs that the host serves now; beside them it may look for bad rows in others."""
        return [run for first_seq, run in self._open.items() if first_seq not in self._isolating]

    @property
    def has_room(self) -> bool:
        """Whether the lane may take another run now."""
        served = self._served
        if len(served) < _LEAST_RUNS:
            return not self._isolating or self._has_credit
        events = sum(run.events for run in served)
        return not self._queue and self._has_credit and events < self.rate_per_s * _HORIZON_S

    def takes(self, run: Run) -> bool:
        """Whether the lane may take this run now: it has room, or no more than credit for one that is waited for.

        A run that came back from a lost lane holds up all results after it. A micro-batch that was planned before its
        host was lost runs again whole: it answers none of its runs before it has all of them.
        """
        waited_for = run.attempt > 0 or run.first_seq < self._planned_end_seq
        return self.has_room or (waited_for and self._has_credit)

    @property
    def _has_credit(self) -> bool:
        return self._credit.available_bytes > 0

    @property
    def connection(self) -> Connection:
        """The link to the host."""
        return self._connection

    @property
    def waiting_s(self) -> float | None:
        """How long the lane has had work and got no answer; None while it has no work."""
        return self._watch.waiting_s(self._clock.now())

    @property
    def link(self) -> LinkStats:
        """What is known of the link to the host."""
        return self._connection.link.stats

    @property
    def choices(self) -> dict[str, str]:
        """The codec of each field, as chosen by now."""
        return dict(self._encoder.choices())

    def put(self, run: Run) -> None:
        """Take a run; the caller has asked ``takes``."""
        self._overdue.pop(run.first_seq, None)
        self._open[run.first_seq] = run
        self._isolating.discard(run.first_seq)
        self._see_work()
        self._queue.append(run)
        self._work.set()

    @property
    def isolating_s(self) -> float:
        """For how long the host has looked for bad rows in runs of this lane."""
        since_s = self._isolating_since_s
        return self._isolated_s + (0.0 if since_s is None else self._clock.now() - since_s)

    @property
    def rate_per_s(self) -> float:
        """Events per second that the lane serves while it has some, its link included; 0 before the first."""
        busy_s = self._busy_s
        if self._busy_since_s is not None:
            busy_s += self._clock.now() - self._busy_since_s
        return self._served_events / busy_s if busy_s > 0 else 0.0

    def end_slot(self) -> None:
        """Let older measurements of the rate fade."""
        if self._busy_since_s is not None:
            now_s = self._clock.now()
            self._busy_s += now_s - self._busy_since_s
            self._busy_since_s = now_s
        self._served_events *= _RATE_MEMORY
        self._busy_s *= _RATE_MEMORY

    async def run(self) -> None:
        """Send what is put, until the link is lost."""
        while True:
            while not (self._queue and self._has_credit):
                self._work.clear()
                await self._work.wait()
            run = self._queue[0]
            if run.first_seq not in self._open:  # another lane has answered it
                self._queue.popleft()
                continue
            encoded = await asyncio.to_thread(self._encoder.encode, run.batch)
            try:
                await self._send(run, encoded)
            except LinkLost:
                return  # whoever watches the connection gives the open runs to other lanes
            self._queue.popleft()
            self._owner.on_room()

    async def _send(self, run: Run, encoded: Encoded) -> None:
        for new in encoded.dictionaries:
            message = Dictionary(query=self._query, field=new.field, dictionary_id=new.dictionary_id)
            await self._connection.link.send(message, new.data)
        if run.first_seq not in self._open:
            return
        self._owner.on_sent(self.name, run, encoded.raw_bytes, len(encoded.payload) if encoded.rows else 0)
        if encoded.rows == 0:
            # Nothing of it passes the early predicates: the answer is known without asking.
            nothing = pa.RecordBatch.from_pylist([], schema=self._result_schema)
            self._take(Answer(self.name, run.first_seq, run.last_seq, nothing, (), NO_BATCH, 0.0))
            return
        while not self._credit.take(len(encoded.payload)):
            self._work.clear()
            await self._work.wait()
        started_s, self._held_back = self._clock.now(), True
        await self._connection.link.send(
            RunMessage(
                query=self._query,
                epoch=self._epoch,
                first_seq=run.first_seq,
                last_seq=run.last_seq,
                attempt=run.attempt,
                rows=encoded.rows,
            ),
            encoded.payload,
        )
        self._held_back = False
        now_s = self._clock.now()
        # Its answer, or word that it failed, may be there before the send has returned.
        if run.first_seq in self._open and run.first_seq not in self._isolating:
            self._watch.sent(run.first_seq, run.attempt, now_s, now_s - started_s)
        self._learn_link_rate(len(encoded.payload), now_s - started_s)

    def overdue(self) -> list[int]:
        """Return the first seqs of the runs that were sent too long ago, from now on without room kept for them.

        An answer that comes all the same is taken; ``forget`` says that none is wanted any more.
        """
        late = self._watch.overdue(self._clock.now())
        for first_seq in late:
            self._overdue[first_seq] = self._open.pop(first_seq)
        self._see_work()
        return late

    @property
    def silence_s(self) -> float | None:
        """How long the lane has had work and completed nothing, if that is too long; else None."""
        return self._watch.silence_s(self._clock.now(), held_back=self._held_back)

    def forget(self, first_seq: int) -> None:
        """Wait no more for the answer of a run that another lane has answered."""
        self._open.pop(first_seq, None)
        self._isolating.discard(first_seq)
        self._overdue.pop(first_seq, None)
        self._watch.forget(first_seq)
        self._see_work()

    def _learn_link_rate(self, sent_bytes: int, took_s: float) -> None:
        """Tell the encoder what the link carries, so that ``auto`` weighs bytes against CPU by it."""
        if took_s < _HELD_BACK_S:
            return
        rate = sent_bytes / took_s
        self._link_rate = rate if self._link_rate is None else self._link_rate + _LINK_WEIGHT * (rate - self._link_rate)
        self._codecs.link_rate(self._link_rate)

    def hear(self, message: Completed | Credit | Isolating | QueryFailed, payload: bytes) -> None:
        """Take what the host says of this query."""
        match message:
            case Credit():
                self._credit.give(message.bytes)
                self._work.set()
                self._owner.on_room()
            case Isolating():
                self._set_aside(message.first_seq)
            case QueryFailed() if message.broken:
                self._owner.on_broken(message.reason)
            case QueryFailed():
                self._owner.on_failed(self.name, message.reason)
            case Completed():
                if message.first_seq not in self._isolating:
                    self._watch.answered(message.first_seq, self._clock.now())
                self._take(
                    Answer(
                        self.name,
                        message.first_seq,
                        message.last_seq,
                        self._decoder.decode(payload),
                        self._poison_seqs(message),
                        message.batch_id,
                        message.batch_s,
                    )
                )

    def _set_aside(self, first_seq: int) -> None:
        if first_seq not in self._open:
            return  # it was asked for elsewhere
        self._isolating.add(first_seq)
        self._watch.set_aside(first_seq)
        self._see_work()
        self._owner.on_isolating(self.name, first_seq)
        self._owner.on_room()

    def _take(self, answer: Answer) -> None:
        done = [key for key, run in self._open.items() if answer.first_seq <= key and run.last_seq <= answer.last_seq]
        self._served_events += sum(self._open[key].events for key in done if key not in self._isolating)
        for key in done:
            del self._open[key]
        self._overdue.pop(answer.first_seq, None)
        self._isolating.difference_update(done)
        for key in done:
            self._watch.forget(key)
        self._see_work()
        self._owner.on_answer(answer)

    def _see_work(self) -> None:
        now_s = self._clock.now()
        works = len(self._open) > len(self._isolating)
        self._watch.works(works, now_s)
        if works and self._busy_since_s is None:
            self._busy_since_s = now_s
        elif not works and self._busy_since_s is not None:
            self._busy_s += now_s - self._busy_since_s
            self._busy_since_s = None
        if self._isolating and self._isolating_since_s is None:
            self._isolating_since_s = now_s
        elif not self._isolating and self._isolating_since_s is not None:
            self._isolated_s += now_s - self._isolating_since_s
            self._isolating_since_s = None

    def _poison_seqs(self, message: Completed) -> tuple[tuple[int, str], ...]:
        run = self._open.get(message.first_seq) or self._overdue.get(message.first_seq)
        if not message.poison or run is None:
            return ()
        kept = kept_rows(run.batch, self._predicates)
        if any(not 0 <= bad.row < len(kept) for bad in message.poison):
            raise ValueError(f"a row at fault is not among the {len(kept)} rows of run {message.first_seq}")
        return tuple((run.first_seq + int(kept[bad.row]), bad.reason) for bad in message.poison)
