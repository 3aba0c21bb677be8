"""The rows, by name; each module is imported only when its row is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suite.row import Row

NAMES = (
    "light",
    "heavy",
    "start",
    "kafka",
    "mqtt",
    "decode",
    "reorder",
    "windows",
    "keys",
    "payload",
    "frames",
    "plan",
    "burst",
)


def _row(name: str) -> Callable[[], Row]:
    def found() -> Row:
        row: Row = import_module(f"suite.row_{name}").ROW
        return row

    return found


ROWS: Mapping[str, Callable[[], Row]] = {name: _row(name) for name in NAMES}
