"""The scale of the fault tests, and what they measure beside its goals, as the tables of two pages.

A page keeps the rows of faults that were not injected again, with the day on which they were measured.

In full form a missed goal fails the test that measured it. Times are judged only in full form, and beside the speed
that the machine has at that moment. ``python -m tests.faults.figures`` writes the tables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "faults.json"
RELIABILITY, WAN = "docs/reliability.md", "docs/results/wan.md"
_SAID = os.environ.get("SPILLWAY_FAULTS", "")
MOST = int(_SAID) if _SAID.isdigit() else None
FULL = _SAID == "full" or MOST is not None
_HEAD = ("| fault | times | outcome | measured | goal | day |", "| --- | --- | --- | --- | --- | --- |")
_BEGIN, _END = "<!-- figures: make faults -->", "<!-- end of figures -->"

# Units of figures that other work on the machine can spoil; goals in the first two grow on a slow machine.
_SCALED = {"s", "ms"}
_TIMED = {*_SCALED, "slots", "x"}
# Starts Python, imports, and computes: what a gateway does most until it is ready.
_TASK = "import asyncio, json, ssl\nfor _ in range(60): json.loads(json.dumps(list(range(20000))))"
# What it took, idle, on the machine for which the goals were set (2 shared cores, 2026-11-23).
_TASK_S = 0.25
_TASKS = 5


def only_full(why: str) -> pytest.MarkDecorator:
    """Return the mark of a test that only ``make faults`` runs."""
    return pytest.mark.skipif(not FULL, reason=f"not run: only make faults runs it; {why}")


def slowness() -> float:
    """Return how many times slower the machine is now than the one for which the goals were set."""
    begun_s = time.monotonic()
    subprocess.run([sys.executable, "-c", _TASK], check=True)
    return (time.monotonic() - begun_s) / _TASK_S


def utc_day() -> str:
    """Return the day of now as YYYY-MM-DD."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


@dataclass(frozen=True)
class Scale:
    """How often each fault is injected: in full, or briefly; ``most``: at most so often in full; and the seed."""

    full: bool
    seed: int
    most: int | None = None

    def times(self, short: int, full: int) -> int:
        """Return the number for this run."""
        if not self.full:
            return short
        return full if self.most is None else min(full, self.most)


@dataclass(frozen=True)
class Measure:
    """A number that was measured, and its goal: at most so much, or at least."""

    what: str
    number: float
    goal: float
    unit: str = ""
    at_least: bool = False

    @property
    def timed(self) -> bool:
        """Whether other work on the machine can spoil it."""
        return self.unit in _TIMED

    def met(self, slow: float) -> bool:
        """Return whether a machine that is ``slow`` times slower met the goal."""
        limit = self.goal * slow if self.unit in _SCALED else self.goal
        return self.number >= limit if self.at_least else self.number <= limit

    @property
    def found(self) -> str:
        """The number in words."""
        return f"{self.what} {_amount(self.number, self.unit)}"

    @property
    def wanted(self) -> str:
        """The goal in words."""
        return f"{self.what} {'>=' if self.at_least else '<='} {_amount(self.goal, self.unit)}"


def _amount(number: float, unit: str) -> str:
    digits = "{:,.0f}" if number == int(number) or number >= 100 else "{:.2f}" if unit in ("", "x") else "{:.1f}"
    return f"{digits.format(number)} {unit}".rstrip()


@dataclass(frozen=True)
class Figure:
    """One row of a page's table; ``slow`` is how slow the machine was when its times were measured, on ``day``."""

    fault: str
    times: int
    outcome: str
    measures: tuple[Measure, ...] = ()
    slow: float = 1.0
    page: str = RELIABILITY
    day: str = ""

    @classmethod
    def kept(cls, row: dict[str, Any]) -> Figure:
        """Return a row that was stored."""
        return cls(**{**row, "measures": tuple(Measure(**each) for each in row["measures"])})

    def missed(self, *, times_too: bool) -> list[Measure]:
        """Return what misses its goal; figures that other work can spoil count only with ``times_too``."""
        return [each for each in self.measures if (times_too or not each.timed) and not each.met(self.slow)]

    @property
    def line(self) -> str:
        """The row as text of a table; goals that were missed are bold."""
        missed = self.missed(times_too=True)
        found = "; ".join(f"**missed: {each.found}**" if each in missed else each.found for each in self.measures)
        wanted = "; ".join(each.wanted for each in self.measures)
        slow = f" (times {self.slow:.1f}: a slow machine)" if self.slow > 1 else ""
        return f"| {self.fault} | {self.times:,} | {self.outcome} | {found} | {wanted}{slow} | {self.day} |"


class Figures:
    """The rows of one run.

    Args:
        judge_times: whether figures that other work can spoil must meet their goals.
        kept: a file for the rows, each stored as soon as it is measured, in place of earlier rows of the same fault.
        calibrate: returns how slow the machine is now.
        today: returns the day.
    """

    def __init__(
        self,
        *,
        judge_times: bool,
        kept: Path | None = None,
        calibrate: Callable[[], float] = slowness,
        today: Callable[[], str] = utc_day,
    ) -> None:
        self.rows: list[Figure] = []
        self._kept = kept
        self._judge_times = judge_times
        self._calibrate = calibrate
        self._today = today
        self._slow: list[float] = []

    def sample(self) -> None:
        """Note how slow the machine is now: a long test calls it after each fault, since other work comes and goes."""
        if self._judge_times:
            self._slow.append(self._calibrate())

    def add(self, fault: str, *measures: Measure, times: int, outcome: str, page: str = RELIABILITY) -> None:
        """Add a row, and fail the test if it misses a goal."""
        slow = self._slowness() if any(each.timed for each in measures) else 1.0
        row = Figure(fault, times, outcome, measures, slow, page, self._today())
        print(row.line)
        self.rows.append(row)
        self._keep(row)
        missed = row.missed(times_too=self._judge_times)
        assert not missed, f"{fault}: " + "; ".join(
            f"measured {each.found}, the goal is {each.wanted}, on a machine {row.slow:.2f} times as slow"
            for each in missed
        )

    def _slowness(self) -> float:
        """Return how slow the machine was, at least 1: the median of samples since the last row and now."""
        for _ in range(_TASKS):
            self.sample()
        slow, self._slow = self._slow, []
        return max(1.0, median(slow) if slow else 1.0)

    def _keep(self, row: Figure) -> None:
        if self._kept is None:
            return
        old = json.loads(self._kept.read_text()) if self._kept.exists() else []
        rows = {each["fault"]: each for each in old} | {row.fault: asdict(row)}
        self._kept.parent.mkdir(exist_ok=True)
        self._kept.write_text(json.dumps(list(rows.values()), indent=1))


def write_pages() -> None:
    """Write the stored rows into their pages, between the marks, in place of older rows of the same faults."""
    rows = [Figure.kept(row) for row in json.loads(KEPT.read_text())]
    for page in sorted({row.page for row in rows}):
        before, _, rest = (ROOT / page).read_text().partition(_BEGIN)
        old, _, after = rest.partition(_END)
        lines = {_fault(line): line for line in old.splitlines() if line.startswith("| ")}
        for head in _HEAD:
            lines.pop(_fault(head), None)
        lines |= {_fault(row.line): row.line for row in rows if row.page == page}
        (ROOT / page).write_text("\n".join([before + _BEGIN, "", *_HEAD, *lines.values(), "", _END + after]))


def _fault(line: str) -> str:
    """Return the first cell of a table's line."""
    return line.split(" | ")[0]


if __name__ == "__main__":
    write_pages()
