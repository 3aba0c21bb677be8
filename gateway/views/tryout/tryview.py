"""Shows on a terminal what a query makes of a sample of its events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.sinks.rows import json_rows
from gateway.views.tryout.sampling import one_batch
from gateway.views.tryout.trying import Tried

_DEAD_MOST: Final = 10
_CELL_CHARACTERS: Final = 200
_RAW_CHARACTERS: Final = 100


def shown(tried: Tried, rows_most: int) -> RenderableType:
    """Return the first rows of the result, the notes, and the dead letters.

    Args:
        tried: the outcome.
        rows_most: how many rows.
    """
    parts: list[RenderableType] = [Text(_head(tried, rows_most))]
    if tried.results.num_rows:
        parts.append(_rows(tried, rows_most))
    parts += [Text(f"note: {note}", "dim") for note in tried.notes]
    dead = list(_dead(tried))
    if dead:
        parts.append(Text("dead letters:", "bold red"))
        parts += [Text(f"  {line}") for line in dead[:_DEAD_MOST]]
        parts += [Text(f"  and {len(dead) - _DEAD_MOST} more")] if len(dead) > _DEAD_MOST else []
    return Group(*parts)


def _head(tried: Tried, rows_most: int) -> str:
    sample, rows = tried.sample, tried.results.num_rows
    read = sample.events.num_rows + len(sample.dead)
    extent = "there are more" if sample.more else "these are all"
    dead = len(sample.dead) + len(tried.bad)
    first = f", the first {rows_most}:" if rows > rows_most else ""
    return (
        f"{tried.query}: {_counted(read, 'record')} of {sample.whence} ({extent}): {_counted(dead, 'dead letter')}, "
        f"{_counted(rows, 'row')}{first}"
    )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _rows(tried: Tried, rows_most: int) -> Table:
    table = Table()
    names = tried.results.schema.names
    for name in names:
        table.add_column(Text(_plain(name)), overflow="fold")
    for raw in json_rows(one_batch(tried.results.slice(0, rows_most))):
        row = json.loads(raw)
        table.add_row(*(_cell(row.get(name)) for name in names))
    return table


def _cell(value: Any) -> Text:
    if value is None:
        return Text("null", "dim")
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Text(_cut(_plain(said), _CELL_CHARACTERS))


def _dead(tried: Tried) -> Iterator[str]:
    for each in tried.sample.dead:
        stream = f"{each.stream}, " if each.stream else ""
        place = f", {each.place}" if each.place else ""
        raw = _cut(_plain(each.raw.decode(errors="replace")), _RAW_CHARACTERS)
        yield f"{stream}record {each.record}{place}: {_plain(each.reason)}: {raw}"
    for row, why in sorted(tried.bad.items()):
        (event,) = json_rows(tried.sample.events.slice(row, 1))
        yield f"event {row}: the query fails over it: {_plain(why)}: {_cut(_plain(event.decode()), _RAW_CHARACTERS)}"


def _plain(text: str) -> str:
    """Return a text of the data without what could steer a terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
