"""The selections of a sample: their events, and how much they overlap."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from engines.query.known import KnownQuery
from engines.query.selections.expansion import expanded
from gateway.config import Config
from gateway.config.models import FileSourceConfig
from gateway.query.flow.runlog import SelectionMark
from gateway.query.flow.selecting.selector import HeldTooMuchError, Selector
from gateway.views.tryout.sampling import SAMPLE_BYTES, SampleError, read_sample
from policies.selections.streamtime import Int64Array

SAMPLE_EVENTS: Final = 10_000


def in_selections(known: KnownQuery, events: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64Array, str]:
    """Return the rows that a query sees of some events, and of which event each is a copy, shape (rows,).

    Of a query with selections these are the events of those that the events close; then the last item says in words how
    much these overlap.

    Raises:
        HeldTooMuchError: the events of open selections would take too much memory.
    """
    rule = known.spec.selections
    if rule is None:
        return events, np.arange(events.num_rows), ""
    selector = Selector(rule, known.plan.selecting, 0, SelectionMark(), SAMPLE_BYTES)
    selected = selector.select(events)
    rows, copied = expanded(selected.batch, rule)
    closed, still_open = selector.mark.selection, selector.open_count + len(selected.dropped_seqs)
    said = f"{events.num_rows:,} events open {closed + still_open:,} selections and close {closed:,}"
    if closed:
        said += f"; an event of those that close is in {len(copied) / len(selected.seqs):.1f} of them on average"
    return rows, selected.seqs[copied], said


def overlap_of(config: Config, name: str, known: KnownQuery, workdir: Path) -> str:
    """Return in words how much selections overlap in the first events of a query's files; empty if there are none.

    Args:
        config: the whole config.
        name: the query's.
        known: its analysis.
        workdir: for what a source keeps while it is read.
    """
    files = [source for source in config.queries[name].inputs.values() if isinstance(source, FileSourceConfig)]
    if known.spec.selections is None or not files:
        return ""
    try:
        sample = read_sample(config, name, known.input_schema, {}, workdir / "sources" / name, SAMPLE_EVENTS)
        _, _, said = in_selections(known, sample.events)
    except (SampleError, HeldTooMuchError):  # run tells it; check must not depend on what files hold now
        return ""
    return f"the first {said}"
