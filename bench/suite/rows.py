"""The rows, by name; each module is imported only when its row is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suite.row import Row

_ROOMS = {
    "tax": ("light", "heavy", "start", "direct", "handover"),
    "reading": ("kafka", "mqtt", "decode"),
    "arrays": ("reorder", "windows", "keys"),
    "wan": ("payload", "mail", "tweets", "ticks", "frames", "latency", "goodput"),
    "whole": ("durable", "posted", "idle", "growth"),
    "deciding": ("plan", "burst"),
}


def _row(module: str) -> Callable[[], Row]:
    def found() -> Row:
        row: Row = import_module(module).ROW
        return row

    return found


ROWS: Mapping[str, Callable[[], Row]] = {
    name: _row(f"suite.{room}.{name}") for room, names in _ROOMS.items() for name in names
}
NAMES = tuple(ROWS)
