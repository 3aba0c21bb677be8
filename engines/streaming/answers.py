"""The answers of an engine to its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from engines.streaming.feed import Item
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
    """

    items: tuple[Item, ...]
    rows: pa.RecordBatch
    poison: tuple[Poison, ...]
    batch_id: int
    batch_s: float


OnAnswers = Callable[[Sequence[RunOutcome]], None]
OnItems = Callable[[Sequence[Item]], None]
