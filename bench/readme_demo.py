"""Plays the demo warm and cold, several times each, and writes the table of README.md.

``python bench/readme_demo.py [--runs 5] [--only warm|cold]``. With ``--only``, the other kind is read from its last
runs; while there are none, its column is left out. Results are in ``build/demo-warm`` and ``build/demo-cold``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from planning.document import put, table

from gateway.demo.load import PACES
from gateway.demo.repeated import read_reports, repeated_rows
from gateway.demo.report import Report
from gateway.demo.run import main as play
from gateway.demo.stage import BOOT_S

ROOT = Path(__file__).parents[1]
KINDS = {"warm": "full", "cold": "cold"}
LEAST_RUNS = 5


def found(build: Path) -> dict[str, list[Report]]:
    """Return the reports of the kinds that were played.

    Raises:
        ValueError: a file is something else.
    """
    paths = {kind: build / f"demo-{kind}" / "runs.json" for kind in KINDS}
    return {kind: read_reports(path) for kind, path in paths.items() if path.exists()}


def text(reports: Mapping[str, Sequence[Report]]) -> str:
    """Return the table: a row for each mode, two columns for each kind.

    Raises:
        ValueError: there are no reports, or the boots of a kind are not what its name says.
    """
    if not reports:
        raise ValueError("the demo was not played: leave out --only")
    for kind, each in reports.items():
        boots = {report.boot for report in each}
        if boots != {"real" if kind == "cold" else "emulated"}:
            raise ValueError(f"the VMs of the {kind} runs booted otherwise: {', '.join(sorted(boots))}")
    head = {"warm": f"boot of {BOOT_S} s emulated, Spark warmed up before", "cold": "each VM really starts its Spark"}
    header = ["median (range)"]
    for kind, each in reports.items():
        header += [f"{kind}: {head[kind]}, {len(each)} runs", "against private only"]
    rows: dict[str, list[str]] = {}
    for each in reports.values():
        for title, mean, change in repeated_rows(each):
            rows.setdefault(title, [title]).extend((mean, change))
    return table(header, rows.values())


def main() -> int:
    """Play what is asked for, and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=LEAST_RUNS, help="of each kind; default and least: 5")
    parser.add_argument("--only", choices=KINDS, help="the kind to play; default: both")
    chosen = parser.parse_args()
    if chosen.runs < LEAST_RUNS:
        parser.error(f"--runs {chosen.runs}: a median and a range need at least {LEAST_RUNS}")
    build = ROOT / "build"
    for kind in [chosen.only] if chosen.only else KINDS:
        if play(None, build / f"demo-{kind}", pace=PACES[KINDS[kind]], runs=chosen.runs):
            return 1
    written = text(found(build))
    print(written)
    put(ROOT / "README.md", "demo", written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
