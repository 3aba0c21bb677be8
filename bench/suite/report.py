"""The tables of a bench, its JSON, and what changed since an earlier one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from planning.document import table

from suite.row import Row
from suite.turns import Goal, Spread, Turns, found, spread

FORMAT = 1


class GoalTold(msgspec.Struct, frozen=True):
    """A goal and what was found; ``side`` is empty if the figure itself counts."""

    figure: str
    side: str
    bound: float
    at_least: bool
    middle: float
    least: float
    most: float
    holds: bool


class RowTold(msgspec.Struct, frozen=True):
    """A row: the middle figure of each side, and the goals."""

    title: str
    sides: dict[str, dict[str, float]]
    goals: list[GoalTold]


class BenchTold(msgspec.Struct, frozen=True):
    """All rows that were measured.

    Attributes:
        format: of this file.
        machine: on which.
        turns: how often each side was measured.
        rows: by name.
    """

    format: int
    machine: str
    turns: int
    rows: dict[str, RowTold]


def told(row: Row, turns: Turns) -> RowTold:
    """Return what was found about a row."""
    sides = {
        side: {figure: spread(figure, side, turns).middle for figure in turns[0][side].figures} for side in row.sides
    }
    return RowTold(row.title, sides, [_goal(goal, found(goal, turns)) for goal in row.goals])


def _goal(goal: Goal, was: Spread) -> GoalTold:
    holds = goal.holds(was.middle)
    return GoalTold(goal.figure, goal.side or "", goal.bound, goal.at_least, was.middle, was.least, was.most, holds)


def text(row: Row, turns: Turns) -> str:
    """Return the tables of a row: figures of each side, and goals."""
    figures = list(dict.fromkeys(figure for side in row.sides for figure in turns[0][side].figures))
    header = ("", *row.sides)
    values = [(figure, *(_cell(figure, side, turns) for side in row.sides)) for figure in figures]
    goals = [
        (goal.figure, str(goal), _spread(was, goal), "yes" if goal.holds(was.middle) else "**no**")
        for goal, was in ((goal, found(goal, turns)) for goal in row.goals)
    ]
    return (
        f"### {row.title[0].upper()}{row.title[1:]}\n\n{row.note}\n\n{table(header, values)}\n\n"
        f"{table(('of', 'goal', 'found', 'holds'), goals, text_columns=2)}"
    )


def _cell(figure: str, side: str, turns: Turns) -> str:
    return number(spread(figure, side, turns).middle) if figure in turns[0][side].figures else ""


def _spread(was: Spread, goal: Goal) -> str:
    form = number if goal.side is None else "{:.2f}".format
    return f"{form(was.middle)} ({form(was.least)} to {form(was.most)})"


def number(value: float) -> str:
    """Return a number with three digits that count, and thousands set apart."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def compared(old: BenchTold, new: BenchTold) -> list[tuple[str, str, str, str, str]]:
    """Return for each goal that both have (row, figure, goal, before, now).

    Ratios are compared where there is another side, as machines differ; figures only if nothing else is there.
    """
    rows = []
    for name, row in new.rows.items():
        before = {(goal.figure, goal.side): goal for goal in old.rows[name].goals} if name in old.rows else {}
        for goal in row.goals:
            was = before.get((goal.figure, goal.side))
            if was is not None:
                against = goal.side or "the figure"
                rows.append((name, goal.figure, against, number(was.middle), number(goal.middle)))
    return rows


def read(path: Path) -> BenchTold:
    """Read the JSON of a bench.

    Raises:
        OSError: it cannot be read.
        ValueError: it is something else.
    """
    try:
        found_there = msgspec.json.decode(path.read_bytes(), type=BenchTold)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is no result of make bench: {error}") from error
    if found_there.format != FORMAT:
        raise ValueError(f"{path} has format {found_there.format}; this bench reads {FORMAT}: measure again")
    return found_there


def missed(rows: Mapping[str, RowTold]) -> Sequence[str]:
    """Return the goals that were missed, in words."""
    return [
        f"{name}: {goal.figure}: {number(goal.middle)}"
        + (f" times {goal.side}" if goal.side else "")
        + f", goal {'at least' if goal.at_least else 'at most'} {number(goal.bound)}"
        for name, row in rows.items()
        for goal in row.goals
        if not goal.holds
    ]
