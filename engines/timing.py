"""Measures how long Spark takes for micro-batches of a query, by their size."""

from __future__ import annotations

import math
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from engines.query.known import KnownQuery, RefusedError
from engines.stateless import StatelessStream
from engines.streaming.answers import Reports, RunOutcome
from engines.streaming.feed import FeedServer, pack
from infra.clock import Clock

_WITHIN_S = 300.0
_WARM_S = 40.0
_WARM_ROUNDS = 25
_WARM_TOGETHER = 8
_SETTLED = 0.97
_TRIES = 20
_LOOK_AGAIN_S = 0.002


@dataclass(frozen=True, slots=True)
class Timed:
    """One micro-batch: its runs and its time."""

    events: int
    batch_s: float
    runs: int = 1


def time_batches(
    query: KnownQuery,
    feeds: FeedServer,
    events: pa.RecordBatch,
    sizes: Sequence[int],
    *,
    repeats: int,
    clock: Clock,
    runs: Sequence[int] = (1,),
    tell: Callable[[Timed], None] = lambda _: None,
) -> list[Timed]:
    """Run micro-batches one after the other, each alone, after some warm-up ones that do not count.

    Java compiles while it runs, so large micro-batches run until they become no faster, for 40 s at most. Those that
    count run in a shuffled order, the same each time. Otherwise a machine that becomes faster or slower meanwhile would
    look like a cost of events.

    Args:
        query: stateless, as the host knows it.
        feeds: where Spark requests runs.
        events: at least as many as the largest size, of the query's input schema.
        sizes: events of a micro-batch.
        repeats: repetitions of each size and number of runs.
        clock: measures time.
        runs: runs of a micro-batch; more than one only if the query is narrow. Sizes with fewer events are left out.
        tell: called after each.

    Raises:
        RefusedError: the query cannot run, or gave no answer.
    """
    shapes = [(count, size) for count in runs for size in sizes if size >= count for _ in range(repeats)]
    random.Random("sizes").shuffle(shapes)  # noqa: S311  # no secret
    timed: list[Timed] = []
    with _Player(query, feeds, events, clock) as player:
        player.warm_up(max(sizes))
        for count, size in shapes:
            timed.append(player.play(count, size))
            tell(timed[-1])
    return timed


class _Player:
    """A stream that runs one micro-batch after the other.

    A micro-batch takes everything that waits when the previous one ends. So the runs of the next are put meanwhile,
    behind a run that only keeps Spark busy.
    """

    def __init__(self, query: KnownQuery, feeds: FeedServer, events: pa.RecordBatch, clock: Clock) -> None:
        self._events, self._clock = events, clock
        self._answered = threading.Semaphore(0)
        self._answers: dict[int, list[RunOutcome]] = {}
        self._death = ""
        self._put = 0
        self._stream = StatelessStream(query, feeds, clock, Reports.of(self._take, self._died))

    def __enter__(self) -> _Player:
        self._stream.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def _take(self, some: Sequence[RunOutcome]) -> None:
        for answer in some:
            self._answers.setdefault(answer.batch_id, []).append(answer)
        for _ in some:
            self._answered.release()

    def _died(self, reason: str) -> None:
        self._death = reason
        self._answered.release()

    def _wait(self, runs: int) -> None:
        for _ in range(runs):
            if not self._answered.acquire(timeout=_WITHIN_S) or self._death:
                raise RefusedError(self._death or f"a micro-batch took longer than {_WITHIN_S:.0f} s")

    def _runs(self, runs: int, events: int) -> None:
        edges = [events * part // runs for part in range(runs + 1)]
        for first, end in pairwise(edges):
            self._stream.put(pack(self._events.slice(first, end - first)), self._put)
            self._put += 1

    def _until_planned(self) -> None:
        """Return when Spark works on the runs that were put last."""
        feed, ends_s = self._stream.feed, self._clock.now() + _WITHIN_S
        while not (feed.planned and feed.planned[-1].end == feed.next_position) and not self._death:
            if self._clock.now() > ends_s:
                raise RefusedError(f"Spark planned no micro-batch within {_WITHIN_S:.0f} s")
            time.sleep(_LOOK_AGAIN_S)

    def play(self, runs: int, events: int) -> Timed:
        """Run one micro-batch, and return how long it took."""
        for _ in range(_TRIES):
            self._answers.clear()
            if runs == 1:
                self._runs(1, events)
                self._wait(1)
            else:
                self._runs(1, self._events.num_rows)
                self._until_planned()
                self._runs(runs, events)
                self._wait(runs + 1)
            last = self._answers[max(self._answers)]
            if len(last) == runs:
                return Timed(events, last[0].batch_s, runs)
        raise RefusedError(f"{_TRIES} tries did not get {runs} runs into one micro-batch")

    def warm_up(self, events: int) -> None:
        """Run large micro-batches until they become no faster."""
        ends_s = self._clock.now() + _WARM_S
        before_s = math.inf
        for _ in range(_WARM_ROUNDS):
            took_s = statistics.median(self.play(1, events).batch_s for _ in range(_WARM_TOGETHER))
            if took_s > _SETTLED * before_s or self._clock.now() > ends_s:
                return
            before_s = min(before_s, took_s)
