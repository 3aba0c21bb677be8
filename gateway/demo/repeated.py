"""Several runs of the demo: which mode comes first in each, and the median and range of their figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec
from rich.table import Table

from gateway.demo.report import TITLES, Improvement, Mode, ModeReport, Report


def order(run: int) -> tuple[Mode, ...]:
    """Return the order of the modes in a run, counted from 0: each mode comes first in one of three.

    Engine hosts live through all modes of a run, and their JVMs compile all the time: what comes last is the fastest.
    """
    modes = tuple(TITLES)
    first = run % len(modes)
    return modes[first:] + modes[:first]


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    """Return the median with the range, as text; without a range if there is one value."""
    middle = form(median(values))
    return middle if len(values) == 1 else f"{middle} ({form(min(values))} to {form(max(values))})"


def repeated_rows(reports: Sequence[Report]) -> list[tuple[str, str, str]]:
    """Return for each mode (its title, mean latency, mean latency compared with private only in the same run)."""
    rows = []
    for mode, title in TITLES.items():
        means_s = [_of(report, mode).latency_ms.mean / 1e3 for report in reports]
        gains = [_improvement(report, mode) for report in reports]
        changes = [-gain.mean_latency_percent for gain in gains if gain is not None]
        rows.append((title, spread(means_s, "{:.2f} s".format), spread(changes, "{:+.0f} %".format) if changes else ""))
    return rows


def repeated_table(reports: Sequence[Report]) -> Table:
    """Return the rows for a terminal."""
    table = Table(title=f"{len(reports)} runs, the order of modes varied: median (range)")
    table.add_column("")
    for title in ("mean latency", "against private only"):
        table.add_column(title, justify="right")
    for row in repeated_rows(reports):
        table.add_row(*row)
    return table


def write_reports(reports: Sequence[Report], path: Path) -> None:
    """Write the reports of all runs as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(reports), indent=2) + b"\n")


def read_reports(path: Path) -> list[Report]:
    """Read what ``write_reports`` wrote.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is something else.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Report])
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} does not contain the reports of several demos: {error}") from error


def _of(report: Report, mode: Mode) -> ModeReport:
    found: ModeReport = getattr(report, mode)
    return found


def _improvement(report: Report, mode: Mode) -> Improvement | None:
    found: Improvement | None = getattr(report.improvements, mode, None)
    return found
