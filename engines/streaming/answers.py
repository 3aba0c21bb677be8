"""The answers of an engine to its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from engines.late.laterows import NONE_LATE, LateRows
from engines.streaming.feed import Item
from engines.streaming.stateoperators import NO_STATE, StateFigures
from engines.streaming.stream import OnDeath
from infra.messages import Poison


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run, or for a stateful query of all runs of a micro-batch.

    Attributes:
        items: the runs, at least one.
        rows: their results.
        poison: the rows that have no result, counted over all the runs.
        batch_id: the micro-batch.
        batch_s: how long that took, with its planning.
        state: what it did to the state.
        late: the rows that came too late, counted over all the runs, if the query is to name them.
    """

    items: tuple[Item, ...]
    rows: pa.RecordBatch
    poison: tuple[Poison, ...]
    batch_id: int
    batch_s: float
    state: StateFigures = NO_STATE
    late: LateRows = NONE_LATE


@dataclass(frozen=True)
class Reports:
    """The functions that an open query calls, on any thread.

    Attributes:
        answers: with the outcome of runs.
        death: with the reason when it cannot go on.
        isolating: with the runs of a micro-batch that failed, before the search for their bad rows.
        broken: with the reason when the query itself is at fault.
        exhausted: with the reason when it exhausts the memory of a host that it shares.
    """

    answers: Callable[[Sequence[RunOutcome]], None]
    death: OnDeath
    isolating: Callable[[Sequence[Item]], None]
    broken: OnDeath
    exhausted: OnDeath

    @classmethod
    def of(cls, answers: Callable[[Sequence[RunOutcome]], None], death: OnDeath) -> Reports:
        """Return reports of a query whose every failure counts as its death."""
        return cls(answers, death, lambda _: None, death, death)
