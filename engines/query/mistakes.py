"""Translates Spark's errors about a query into the words of the config."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from pyspark.errors import PySparkException

from engines.query.sqltext import EVENTS

_NO_COLUMN: Final = ("UNRESOLVED_COLUMN.WITH_SUGGESTION", "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION")
_NAME: Final = re.compile(r"`((?:``|[^`])*)`")
_LAST_NAME: Final = re.compile(r"(?:`(?:``|[^`])*`\.)*`((?:``|[^`])*)`")
_COLUMNS_SAID: Final = 20
_OTHER_MODE: Final = {
    "in Complete output mode": (
        "Sorting is not supported over a stream, which has no end, unless it sorts an aggregation of which all rows "
        "are emitted each time: write output: {mode: complete}, or sort where the results are read"
    ),
    "Limits are not supported on streaming DataFrames/Datasets in Update": (
        "LIMIT and output.mode update do not go together, since a row that is not among the first ones any more would "
        "stay in the sink: write output: {mode: complete}, or remove the LIMIT"
    ),
    "in Update output mode, only in Append": (
        "its join of streams has no output.mode update, because a row without a partner is emitted only when none can "
        "come any more: write output: {mode: append}"
    ),
    "correctness' issue due to global watermark": (
        "several of its steps keep state, and one may emit rows that are too late for the next one: write output: "
        "{mode: append}, in which most such queries run, with event_time; or make two queries of it"
    ),
}
"""What to write, by a part of Spark's text; these errors have no condition of their own."""


def wrong_name(
    error: BaseException, columns: Sequence[str], views: Sequence[str] = (), streams: Sequence[str] = ()
) -> str:
    """Return which column or table does not exist, and which do; empty if the error is another one.

    Args:
        error: raised when the query was analysed.
        columns: of the view of events.
        views: that the query creates.
        streams: the views of its events if they are from several sources.
    """
    if not isinstance(error, PySparkException):
        return ""
    condition, said = error.getCondition() or "", error.getMessageParameters() or {}
    if condition in _NO_COLUMN:
        return _no_column(
            _names(said.get("objectName", "")),
            _last_names(said.get("proposal", "")),
            [] if views or streams else columns,
        )
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        return _no_table(".".join(_names(said.get("relationName", ""))), list(streams) or [EVENTS], views)
    return ""


def _no_column(path: list[str], proposed: list[str], columns: Sequence[str]) -> str:
    name = path[-1] if path else ""
    elsewhere = [other for other in proposed if other not in columns and other not in path[:-1]]
    if elsewhere:
        # A subquery has its own columns.
        return f'there is no column "{name}" where it is used; there is {_quoted(elsewhere)}'
    near = _nearest(name, columns)
    nearest = f'; the nearest is "{near}"' if near else ""
    return f'there is no column "{name}" in the view {EVENTS}{nearest} (its columns are {_listed(columns)})'


def _no_table(name: str, of_events: Sequence[str], views: Sequence[str]) -> str:
    nearest = _nearest(name, [*of_events, *views])
    near = f'; write "{nearest}"' if nearest else ""
    plural = "" if len(of_events) == 1 else "s"
    return f'there is no table or view "{name}": the query\'s events are in the view{plural} {_quoted(of_events)}{near}'


def _nearest(name: str, known: Sequence[str]) -> str:
    """Return the known name that is most similar to ``name``; empty if none is."""
    by_lower = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), by_lower, 1, 0.5)
    return by_lower[found[0]] if found else ""


def _names(text: str) -> list[str]:
    return [name.replace("``", "`") for name in _NAME.findall(text)]


def _last_names(text: str) -> list[str]:
    """Return the names of columns without those of their views, each once."""
    return list(dict.fromkeys(name.replace("``", "`") for name in _LAST_NAME.findall(text)))


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names[:_COLUMNS_SAID])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _COLUMNS_SAID} more" if len(names) > _COLUMNS_SAID else ""
    return ", ".join(names[:_COLUMNS_SAID]) + more


def not_streaming(error: BaseException) -> str:
    """Return which part of a query cannot run over a stream, and what to write; empty if the error is another one."""
    if not isinstance(error, PySparkException):
        return ""
    said = error.getMessageParameters() or {}
    match error.getCondition():
        case "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION":
            return _not_in_this_mode(said.get("operation", ""))
        case "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING":
            return (
                f"{said.get('windowFunc', 'a window function')} OVER (…) has no end over a stream: group by "
                "window(<time column>, …) with a watermark instead"
            )
        case "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY":
            return "a subquery reads the stream of events, which has no end: join, or aggregate with a watermark"
        case _:
            text = str(error)
            return next((said for part, said in _OTHER_MODE.items() if part in text), "")


def _not_in_this_mode(operation: str) -> str:
    """Return what to write if Spark refuses an output mode; ``operation`` is Spark's word for what does not fit it."""
    if "watermark" in operation:
        return (
            "it aggregates without a watermark, so that no result would ever be final: set event_time: {column: "
            "<time column>, lateness: 10m} in the query, or write FROM events WATERMARK <time column> DELAY OF "
            "INTERVAL 10 MINUTES, and group by window(<time column>, …); or write output: {mode: update, key: [<the "
            "columns of GROUP BY>]}, which emits each change"
        )
    if "session window" in operation:
        return (
            "session windows have no output.mode update, since a new event may merge two of them: write mode: append, "
            "with event_time"
        )
    if "no streaming aggregations" in operation:
        return "output.mode complete is for aggregations, and it has none: write mode: append"
    return f"its output.mode is not possible with {operation}: write mode: append"
