"""Measures how long Spark takes for micro-batches of a query, by their size."""

from __future__ import annotations

import math
import random
import statistics
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from engines.query.known import KnownQuery, RefusedError
from engines.stateful import StatefulStream
from engines.stateless import StatelessStream
from engines.streaming.answers import Reports, RunOutcome
from engines.streaming.feed import FeedServer, pack
from infra.clock import Clock

_WITHIN_S = 300.0
_WARM_S = 60.0
_WARM_TOGETHER = 4
_SETTLED = 0.97
_SETTLED_ROUNDS = 2
_TRIES = 20
_LOOK_AGAIN_S = 0.002


@dataclass(frozen=True, slots=True)
class Timed:
    """One micro-batch.

    Attributes:
        events: it had.
        batch_s: from the answer of the one before to its own answer: Spark writes and plans in between, too.
        runs: it had.
    """

    events: int
    batch_s: float
    runs: int = 1


def time_batches(
    query: KnownQuery,
    events: Callable[[int, int], pa.RecordBatch],
    sizes: Sequence[int],
    *,
    repeats: int,
    clock: Clock,
    runs: Sequence[int] = (1,),
    tell: Callable[[Timed], None] = lambda _: None,
) -> list[Timed]:
    """Run micro-batches one after the other, each alone, after some warm-up ones that do not count.

    Java compiles while it runs, so the largest micro-batches, with one run and with the most, run until they become no
    faster, for a minute at most. Those that count run in a shuffled order, the same each time. Otherwise a machine that
    becomes faster or slower meanwhile would look like a cost of events.

    Args:
        query: stateless, as the host knows it.
        events: returns the rows of a run, of the query's run schema: of the events from one number to another.
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
    with _Player(query, events, clock) as player:
        player.warm_up({(min(runs), max(sizes)), (max(runs), max(sizes))})
        for count, size in shapes:
            timed.append(player.play(count, size))
            tell(timed[-1])
    return timed


def time_in_order(
    query: KnownQuery,
    feeds: FeedServer,
    events: pa.RecordBatch,
    sizes: Sequence[int],
    *,
    repeats: int,
    clock: Clock,
    folder: Path,
    tell: Callable[[Timed], None] = lambda _: None,
) -> list[Timed]:
    """Run micro-batches of a stateful query, which gets each event once and in order, as from its source.

    It does so twice, each time with empty state. The first time counts as warm-up: Java compiles while it runs. The
    sizes come in a shuffled order, the same each time.

    Args:
        query: stateful, as the host knows it.
        feeds: where Spark requests runs.
        events: at least as many as all micro-batches together have, of the query's input schema.
        sizes: events of a micro-batch.
        repeats: repetitions of each size.
        clock: measures time.
        folder: for checkpoints.
        tell: called after each micro-batch that counts.

    Raises:
        RefusedError: the query cannot run, or gave no answer.
    """
    shapes = [size for size in sizes for _ in range(repeats)]
    random.Random("sizes").shuffle(shapes)  # noqa: S311  # no secret
    timed: list[Timed] = []
    for part in ("warm-up", "timed"):
        spec = msgspec.structs.replace(query.spec, checkpoint_dir=str(folder / part))
        with _InOrder(replace(query, spec=spec), feeds, events, clock) as player:
            for size in shapes:
                one = player.play(size)
                if part == "timed":
                    timed.append(one)
                    tell(one)
    return timed


class _Tag(NamedTuple):
    """A run; each counts as one with the same selections, so that each is in a micro-batch of its own.

    Attributes:
        number: of the run.
        selections: see ``engines.opened.Ticket``.
    """

    number: int
    selections: None = None


class _Answers:
    """Waits for the answers of a stream; ``came_s`` has when those of each micro-batch came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.answered = threading.Semaphore(0)
        self.answers: dict[int, list[RunOutcome]] = {}
        self.came_s: dict[int, float] = {}
        self.death = ""
        self.reports = Reports.of(self._take, self._died)

    def _take(self, some: Sequence[RunOutcome]) -> None:
        for answer in some:
            self.answers.setdefault(answer.batch_id, []).append(answer)
            self.came_s[answer.batch_id] = self._clock.now()
        for _ in some:
            self.answered.release()

    def _died(self, reason: str) -> None:
        self.death = reason
        self.answered.release()

    def wait(self, runs: int) -> None:
        """Return when so many answers have come."""
        for _ in range(runs):
            if not self.answered.acquire(timeout=_WITHIN_S) or self.death:
                raise RefusedError(self.death or f"a micro-batch took longer than {_WITHIN_S:.0f} s")


class _InOrder:
    """A stateful stream that runs one micro-batch after the other."""

    def __init__(self, query: KnownQuery, feeds: FeedServer, events: pa.RecordBatch, clock: Clock) -> None:
        self._events, self._clock = events, clock
        self._got = _Answers(clock)
        self._stream = StatefulStream(query, feeds, clock, self._got.reports)

    def __enter__(self) -> _InOrder:
        self._stream.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def play(self, events: int) -> Timed:
        """Run one micro-batch with the next events, and return how long it took."""
        first = self._stream.feed.next_position
        parts = pack(self._events.slice(first, events))
        self._got.came_s.clear()
        put_s = self._clock.now()
        self._stream.put(parts, first, first, first + events)
        self._got.wait(1)
        self._stream.committed(first + events - 1)
        (came_s,) = self._got.came_s.values()
        return Timed(events, came_s - put_s)


class _Player:
    """A stream that runs one micro-batch after the other.

    A micro-batch takes everything that waits when the previous one ends. So the runs of the next are put meanwhile,
    behind a run that only keeps Spark busy.
    """

    def __init__(self, query: KnownQuery, events: Callable[[int, int], pa.RecordBatch], clock: Clock) -> None:
        self._events, self._clock = events, clock
        self._got = _Answers(clock)
        self._put = 0
        self._largest = 0
        self._stream = StatelessStream(query, clock, self._got.reports)

    def __enter__(self) -> _Player:
        self._stream.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def _runs(self, runs: int, events: int) -> float:
        """Put runs that have so many events together, and return when."""
        edges = [events * part // runs for part in range(runs + 1)]
        packed = [pack(self._events(first, end)) for first, end in pairwise(edges)]
        put_s = self._clock.now()
        for parts in packed:
            self._stream.put(parts, _Tag(self._put))
            self._put += 1
        return put_s

    def _until_planned(self) -> None:
        """Return when Spark works on the runs that were put last."""
        feed, ends_s = self._stream.feed, self._clock.now() + _WITHIN_S
        while not (feed.planned and feed.planned[-1].end == feed.next_position) and not self._got.death:
            if self._clock.now() > ends_s:
                raise RefusedError(f"Spark planned no micro-batch within {_WITHIN_S:.0f} s")
            time.sleep(_LOOK_AGAIN_S)

    def play(self, runs: int, events: int) -> Timed:
        """Run one micro-batch, and return how long it took."""
        for _ in range(_TRIES):
            self._got.answers.clear()
            self._got.came_s.clear()
            if runs == 1:
                begun_s = self._runs(1, events)
                self._got.wait(1)
            else:
                self._runs(1, self._largest)
                self._until_planned()
                self._runs(runs, events)
                self._got.wait(runs + 1)
                begun_s = self._got.came_s[min(self._got.came_s)]
            last = max(self._got.answers)
            if len(self._got.answers[last]) == runs:
                return Timed(events, self._got.came_s[last] - begun_s, runs)
        raise RefusedError(f"{_TRIES} tries did not get {runs} runs into one micro-batch")

    def warm_up(self, shapes: Collection[tuple[int, int]]) -> None:
        """Run micro-batches of these numbers of runs and events until they have become no faster twice."""
        self._largest = max(events for _, events in shapes)
        ends_s = self._clock.now() + _WARM_S
        best_s, settled = math.inf, 0
        while settled < _SETTLED_ROUNDS and self._clock.now() < ends_s:
            took_s = sum(
                statistics.median(self.play(runs, events).batch_s for _ in range(_WARM_TOGETHER))
                for runs, events in shapes
            )
            settled = settled + 1 if took_s > _SETTLED * best_s else 0
            best_s = min(best_s, took_s)
