"""Decisions of the ledger as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from gateway.views.why.telling import explained


def decisions_table(lines: Iterable[Mapping[str, Any]]) -> Table:
    """Return a row for each decision: when, about which query, what was decided and done, and why.

    Args:
        lines: of the ledger.
    """
    table = Table(box=None, pad_edge=False)
    table.add_column("at (UTC)", no_wrap=True)
    table.add_column("query", no_wrap=True)
    table.add_column("decision")
    table.add_column("because", overflow="fold")
    for line in lines:
        at = datetime.fromtimestamp(line["wall_s"], UTC)
        table.add_row(f"{at:%Y-%m-%d %H:%M:%S}", line["query"], Text(line["verdict"]), Text(reason(line)))
    return table


def reason(line: Mapping[str, Any]) -> str:
    """Return in one text why something was done; if nothing was, why not, or what was seen.

    Args:
        line: of the ledger.
    """
    parts = explained(line)
    if parts.done:
        return " ".join(parts.done)
    return f"nothing was done: {line['vm_note']}" if line["vm_note"] else parts.why[0]
