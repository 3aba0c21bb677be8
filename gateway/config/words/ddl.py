"""Names and types of the top-level columns of a Spark DDL schema, for checks that must not wait for Spark.

Spark itself checks the schema; this module only finds out whether a column that the config names exists.
"""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = r"(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<bare>[^\s:`]+))"
_UNSAID: Final = re.compile(r"\s+NOT\s+NULL\b|\s+COMMENT\s+('[^']*'|\"[^\"]*\")", re.IGNORECASE)
_COLUMN: Final = re.compile(rf"\s*{_NAME}(?:\s*:\s*|\s+)(?P<type>\S.*)", re.DOTALL)
_OPEN: Final = "<("
_CLOSE: Final = ">)"


def top_level_columns(ddl: str) -> dict[str, str]:
    """Return each top-level column's name and its type in upper case, in order.

    Raises:
        ValueError: a column has no type, or two columns have the same name.
    """
    return {name: kind.upper() for name, kind in _columns(ddl).items()}


def types_as_written(ddl: str) -> dict[str, str]:
    """Return each top-level column's name and its type as it is written, without NOT NULL and comment, in order.

    Raises:
        ValueError: as for ``top_level_columns``.
    """
    return {
        name: kind if "<" in kind else _UNSAID.sub("", kind).strip().upper() for name, kind in _columns(ddl).items()
    }


def _columns(ddl: str) -> dict[str, str]:
    columns: dict[str, str] = {}
    for part in _split(ddl):
        match = _COLUMN.fullmatch(part)
        if match is None:
            raise ValueError(f'"{part.strip()}" is not a column; write name TYPE, as in subject STRING')
        name = match["bare"] or match["quoted"].replace("``", "`")
        if name in columns:
            raise ValueError(f'column "{name}" is listed twice')
        columns[name] = match["type"].strip()
    return columns


def _split(ddl: str) -> list[str]:
    """Cut at the commas that are outside brackets, backquotes and quoted comments."""
    parts, depth, start, quote = [], 0, 0, ""
    for index, char in enumerate(ddl):
        if quote:
            quote = "" if char == quote else quote
        elif char in "`'\"":
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(ddl[start:index])
            start = index + 1
    return [*parts, ddl[start:]]
