"""Finds the rows of a micro-batch that its query has dropped because they were behind the watermark."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engines.late.lineage import Lineage, NoLineageError
from engines.query.conditions import scala_items
from engines.query.known import KnownQuery
from engines.spark.session import sibling
from infra.messages import STREAM, OpenQuery

_DROPPED = "numRowsDroppedByWatermark"
"""The metric of operators that drop rows."""
_NEVER_US = 2**63 - 1


@dataclass(frozen=True)
class LateRows:
    """Rows that had no effect, because all that became of them was dropped.

    Attributes:
        rows: their numbers, ascending.
        watermark_ms: what is not after it was dropped; ms since 1970.
    """

    rows: tuple[int, ...] = ()
    watermark_ms: int = 0

    def counted_with(self, left_out: Collection[int]) -> LateRows:
        """Return the same rows, numbered among all rows of which those with the numbers ``left_out`` were left out."""
        if not left_out:
            return self
        most = len(left_out) + (self.rows[-1] + 1 if self.rows else 0)
        kept = [row for row in range(most) if row not in left_out]
        return LateRows(tuple(kept[row] for row in self.rows), self.watermark_ms)

    def bits(self) -> bytes:
        """Return a bit for each row up to the last late one, the first row in the highest bit."""
        flags = np.zeros(self.rows[-1] + 1 if self.rows else 0, bool)
        flags[list(self.rows)] = True
        return np.packbits(flags).tobytes()


NONE_LATE: Final = LateRows()


def late_rows(query: KnownQuery, execution: Any, rows: pa.RecordBatch) -> LateRows:
    """Return the rows of a micro-batch that had no effect because they came too late.

    A row that is in several windows is one of them only if all these windows were closed.

    Args:
        query: with an event time.
        execution: Spark's, of the micro-batch that was computed last.
        rows: of the micro-batch.

    Raises:
        NoLineageError: the plan does not say which rows these are.
    """
    watermark_ms = _watermark_ms(execution.executedPlan())
    watermark, never = (pa.scalar(us, pa.timestamp("us", "UTC")) for us in (1000 * watermark_ms, _NEVER_US))
    # A window ends after each of its rows, so no other rows can be among them.
    numbers = pc.indices_nonzero(_behind(query.spec, rows, watermark)).cast(pa.int64())
    lineage = Lineage(sibling(query.base), rows.take(numbers), execution.optimizedPlan())
    found = pa.concat_tables(lineage.event_times())
    found = found.set_column(1, "time", found["time"].fill_null(never))
    latest = found.group_by("row").aggregate([("time", "max")])
    late = latest.filter(pc.less_equal(latest["time_max"], watermark)).column("row")
    return LateRows(tuple(sorted(numbers.take(late.combine_chunks()).to_pylist())), watermark_ms)


def _behind(spec: OpenQuery, rows: pa.RecordBatch, watermark: pa.Scalar) -> pa.Array:
    """Return for each row whether it is to be named if it came too late, and is behind the watermark."""
    if spec.event_time is not None:
        return pc.less_equal(rows.column(spec.event_time.column), watermark).fill_null(False)
    found = pa.array(np.zeros(rows.num_rows, bool))
    for stream in spec.streams:
        if stream.name in spec.keep_late and stream.event_time is not None:
            times = rows.column(dict(stream.columns)[stream.event_time.column])
            late = pc.and_kleene(pc.equal(rows.column(STREAM), stream.name), pc.less_equal(times, watermark))
            found = pc.or_(found, late.fill_null(False))
    return found


def _watermark_ms(plan: Any) -> int:
    """Return the watermark by which the operators of an executed plan have dropped rows."""
    found = {
        int(node.eventTimeWatermarkForLateEvents().get())
        for node in _walk(plan)
        if node.metrics().contains(_DROPPED) and node.eventTimeWatermarkForLateEvents().isDefined()
    }
    if len(found) != 1:
        raise NoLineageError(f"its operators have {len(found)} watermarks")
    return found.pop()


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in scala_items(node.children()):
        yield from _walk(child)
