"""What the stateful operators of a micro-batch have dropped and hold, from Spark's own metrics.

Spark's progress has the same figures, but only after the batch is committed, which is after its results are delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from engines.query.conditions import kind_of, scala_items

_DROPPED = "numRowsDroppedByWatermark"
_HELD = "numTotalStateRows"
_WATERMARK = "EventTimeWatermarkExec"
_Path = tuple[int, ...]


@dataclass(frozen=True)
class StateFigures:
    """What a micro-batch did to the state of a query.

    Attributes:
        too_late: what its operators dropped because it was behind the watermark: rows, or in an aggregation groups,
            since Spark has combined the rows of a micro-batch by then.
        open_groups: the rows of state afterwards, of an aggregation its open groups; None without a watermark.
    """

    too_late: int = 0
    open_groups: int | None = None


NO_STATE: Final = StateFigures()


def execution_of(running: StreamingQuery) -> Any:
    """Return Spark's execution of the micro-batch that was computed last."""
    query: Any = running._jsq  # noqa: SLF001 - a batch under way is nowhere in the public API
    return query.streamingQuery().lastExecution()


class StateOperators:
    """Reads the metrics of a query's operators after each of its micro-batches.

    Each micro-batch has a plan of its own, of the same form. So only the first one is searched.
    """

    def __init__(self) -> None:
        self._metrics: list[tuple[_Path, str, str]] | None = None
        self._watermark = False

    def figures(self, running: StreamingQuery) -> StateFigures:
        """Return the figures of the micro-batch that was computed last."""
        root = execution_of(running).executedPlan()
        values = self._known(root)
        if values is None:
            self._search(root)
            values = self._known(root) or []
        too_late = sum(value for metric, value in values if metric == _DROPPED)
        held = [value for metric, value in values if metric == _HELD]
        return StateFigures(too_late, sum(held) if self._watermark and held else None)

    def _known(self, root: Any) -> list[tuple[str, int]] | None:
        """Return the metrics by the places of the last search; None if the plan has another form."""
        values = []
        for path, kind, metric in self._metrics or ():
            node = root
            for index in path:
                children = node.children()
                if index >= children.size():
                    return None
                node = children.apply(index)
            if kind_of(node) != kind:
                return None
            values.append((metric, int(node.metrics().apply(metric).value())))
        return None if self._metrics is None else values

    def _search(self, root: Any) -> None:
        self._metrics, self._watermark = [], False
        for path, node in _walk(root, ()):
            kind, metrics = kind_of(node), node.metrics()
            self._watermark = self._watermark or kind == _WATERMARK
            self._metrics += [(path, kind, metric) for metric in (_DROPPED, _HELD) if metrics.contains(metric)]


def _walk(node: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
    yield path, node
    for index, child in enumerate(scala_items(node.children())):
        yield from _walk(child, (*path, index))
