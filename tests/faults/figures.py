"""The scale of the fault tests, and their measurements as the table in docs/reliability.md."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "faults.json"
PAGE = ROOT / "docs" / "reliability.md"
_BEGIN, _END = "<!-- figures: make faults -->", "<!-- end of figures -->"


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
class Figure:
    """One row of the table."""

    fault: str
    times: int
    outcome: str
    figure: str
    goal: str


class Figures:
    """The rows of one run."""

    def __init__(self) -> None:
        self.rows: list[Figure] = []

    def add(self, fault: str, *, times: int, outcome: str, figure: str, goal: str) -> None:
        """Add a row."""
        row = Figure(fault, times, outcome, figure, goal)
        print(row)
        self.rows.append(row)

    def keep(self) -> None:
        """Merge this run's rows into those of earlier runs in build/, which they replace."""
        if not self.rows:
            return
        old = json.loads(KEPT.read_text()) if KEPT.exists() else []
        rows = {row["fault"]: row for row in old} | {row.fault: asdict(row) for row in self.rows}
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(list(rows.values()), indent=1))


def write_page() -> None:
    """Write the stored rows into the page, between its marks."""
    rows = [Figure(**row) for row in json.loads(KEPT.read_text())]
    lines = ["| fault | times | outcome | measured | goal |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row.fault} | {row.times:,} | {row.outcome} | {row.figure} | {row.goal} |" for row in rows]
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    PAGE.write_text("\n".join([before + _BEGIN, "", *lines, "", _END + after]))


if __name__ == "__main__":
    write_page()
