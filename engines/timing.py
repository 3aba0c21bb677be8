"""How long Spark takes for micro-batches of a query, by their size."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from engines.feed import FeedServer, pack
from engines.query import Query, RefusedError
from engines.stateless import Answer, StatelessStream
from infra.clock import Clock

_WITHIN_S = 300.0
_WARM_UPS = 3


@dataclass(frozen=True, slots=True)
class Timed:
    """One micro-batch."""

    events: int
    batch_s: float


def time_batches(
    query: Query,
    feeds: FeedServer,
    events: pa.RecordBatch,
    sizes: Sequence[int],
    *,
    repeats: int,
    clock: Clock,
    tell: Callable[[Timed], None] = lambda _: None,
) -> list[Timed]:
    """Play micro-batches one after the other, each alone, after some that are not counted.

    Their order is shuffled, always in the same way: a machine that becomes faster or slower meanwhile must not pass for
    the cost of an event.

    Args:
        query: stateless, as the host understands it.
        feeds: where Spark asks for runs.
        events: at least as many as the largest size, of the query's input schema.
        sizes: events of a micro-batch.
        repeats: so many of each size.
        clock: measures.
        tell: called after each.

    Raises:
        RefusedError: the query cannot be run, or gave no answer.
    """
    answered = threading.Semaphore(0)
    answers: list[Answer] = []
    deaths: list[str] = []

    def take(some: Sequence[Answer]) -> None:
        answers.extend(some)
        for _ in some:
            answered.release()

    def died(reason: str) -> None:
        deaths.append(reason)
        answered.release()

    order = [size for size in sizes for _ in range(repeats)]
    random.Random("sizes").shuffle(order)  # noqa: S311  # no secret
    timed: list[Timed] = []
    stream = StatelessStream(query, feeds, clock, take, died)
    stream.open()
    try:
        for number, size in enumerate([max(sizes)] * _WARM_UPS + order):
            stream.put(pack(events.slice(0, size)), number)
            if not answered.acquire(timeout=_WITHIN_S) or deaths:
                raise RefusedError(deaths[0] if deaths else f"{size} events took longer than {_WITHIN_S:.0f} s")
            if number >= _WARM_UPS:
                timed.append(Timed(size, answers[-1].batch_s))
                tell(timed[-1])
    finally:
        stream.close()
    return timed
