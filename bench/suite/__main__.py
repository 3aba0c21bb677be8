"""``python -m suite [ROW ...]`` measures the rows of the bench and writes docs/results/bench.md and build/bench.json.

Each side of a row is measured in a process of its own on one CPU, in the order A B B A, and the next turn begins where
the last one ended. Ratios are of the same turn; tables show the median, the least and the greatest.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from planning.document import put, table
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from suite.report import FORMAT, BenchTold, RowTold, compared, missed, read, text, told
from suite.row import CPU, ROOT, Row, SideError, measured
from suite.rows import NAMES, ROWS
from suite.turns import Sample, Turns, order, wrong_answers

DOCUMENT = ROOT / "docs" / "results" / "bench.md"
LEAST_TURNS = 7
_FAILED, _BAD_INPUT = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 0 if all rows could be measured and all sides answered alike, whether goals hold or not."""
    chosen = _asked(arguments)
    console = Console()
    try:
        before = None if chosen.compare is None else read(chosen.compare)
    except (OSError, ValueError) as error:
        console.print(str(error), style="red", markup=False)
        return _BAD_INPUT
    rows: dict[str, RowTold] = {}
    failed = False
    for name in chosen.rows or NAMES:
        begun_s = time.monotonic()
        try:
            rows[name] = _row(name, chosen.turns, console)
        except SideError as error:
            console.print(str(error), style="red", markup=False, soft_wrap=True)
            failed = True
        console.print(f"{name}: {(time.monotonic() - begun_s) / 60:.1f} minutes", markup=False, highlight=False)
    _tell(rows, before, chosen, console)
    return _FAILED if failed else 0


def _row(name: str, turns: int, console: Console) -> RowTold:
    """Measure a row, print it, and write it to the document if there were enough turns."""
    row = ROWS[name]()
    found = _measure(row, min(turns, row.turns_most), console)
    if wrong := wrong_answers(found):
        raise SideError(f"{name}: {', '.join(wrong)} did not compute what Spillway did")
    written = text(row, found)
    console.print(written, markup=False, highlight=False)
    if turns >= LEAST_TURNS:
        put(DOCUMENT, name, written)
    return told(row, found)


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"rows to measure: {', '.join(NAMES)}; default: all")
    parser.add_argument("--turns", type=int, default=LEAST_TURNS, help="of each side; with fewer than 7 no document")
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="show what changed since an earlier bench")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench.json", help="default: build/bench.json")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.rows if name not in ROWS]:
        parser.error(f"there is no row {', '.join(unknown)}: choose from {', '.join(NAMES)}")
    if chosen.turns < 1:
        parser.error("--turns must be at least 1")
    return chosen


def _measure(row: Row, turns: int, console: Console) -> Turns:
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    # The last CPU is for the sides, all others for what is around them.
    cpu, others = cpus[-1], set(cpus[:-1])
    os.environ[CPU] = str(cpu)
    if others and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, others)
    found: list[dict[str, Sample]] = [{} for _ in range(turns)]
    steps = order(list(row.sides), turns, row.seldom)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    try:
        with row.around() as there, bars:
            bar = bars.add_task(row.name, total=len(steps))
            for turn, side in steps:
                step = f"{row.name}: {side}, turn {turn + 1} of {turns}"
                bars.update(bar, description=step)
                if not console.is_terminal:
                    print(step, file=sys.stderr, flush=True)
                found[turn][side] = measured(row, side, cpu, there)
                bars.advance(bar)
    finally:
        if others and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cpus)
    return found


def _tell(rows: dict[str, RowTold], before: BenchTold | None, chosen: argparse.Namespace, console: Console) -> None:
    """Write the JSON; print the goals that were missed, and what changed."""
    machine = f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}"
    now = BenchTold(FORMAT, machine, chosen.turns, rows)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_bytes(msgspec.json.format(msgspec.json.encode(now), indent=2) + b"\n")
    for line in missed(rows):
        console.print(f"missed: {line}", markup=False, highlight=False, soft_wrap=True)
    if before is not None:
        console.print(table(("row", "of", "against", "before", "now"), compared(before, now), text_columns=3))
    console.print(f"Figures: {chosen.out}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
