"""Tables of figures, of one seed or with the median and the range over several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

NONE = "-"
_EXACT_BELOW = 100
"""The median of an even number of seeds may lie between two counts."""


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def _part(value: float) -> str:
    return f"{value:.1%}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value > _EXACT_BELOW else f"{value:,.1f}"


def _usd(value: float) -> str:
    return f"{value:.4f}"


@dataclass(frozen=True, slots=True)
class Figure:
    """A column of figures.

    Attributes:
        title: its title, also in JSON.
        width: in characters.
        write: how a figure is written.
    """

    title: str
    width: int
    write: Callable[[float], str]

    def cell(self, value: float | None, none: str = NONE) -> str:
        """Return a figure as it is in the table."""
        return f"{none if value is None else self.write(value):>{self.width}}"


def seconds(title: str, width: int = 9) -> Figure:
    """Return a column of times, in s."""
    return Figure(title, width, _seconds)


def part(title: str, width: int = 6) -> Figure:
    """Return a column of parts from 0 to 1."""
    return Figure(title, width, _part)


def number(title: str, width: int) -> Figure:
    """Return a column of counts."""
    return Figure(title, width, _count)


def usd(title: str = "USD", width: int = 9) -> Figure:
    """Return a column of money, in USD."""
    return Figure(title, width, _usd)


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one thing.

    Attributes:
        names: what it is, one for each column of names.
        values: one for each figure; None if there is no such figure.
        none: what is written in place of None.
    """

    names: tuple[str, ...]
    values: tuple[float | None, ...]
    none: str = NONE


@dataclass(frozen=True, slots=True)
class Table:
    """A table of one seed.

    Attributes:
        names: title and width of the columns of names.
        figures: the columns of figures.
        rows: its rows.
    """

    names: tuple[tuple[str, int], ...]
    figures: tuple[Figure, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """A figure over several seeds; those that do not have it are left out."""

    median: float
    lowest: float
    highest: float


def ranges(tables: Sequence[Table]) -> list[tuple[Row, list[Range | None]]]:
    """Return each row with the range of each of its figures over the tables of several seeds.

    Args:
        tables: of the same things; a row may be missing in some.
    """
    rows: dict[tuple[str, ...], list[Row]] = {}
    for table in tables:
        for row in table.rows:
            rows.setdefault(row.names, []).append(row)
    return [
        (same[0], [_range(values) for values in zip(*(row.values for row in same), strict=True)])
        for same in rows.values()
    ]


def _range(values: Sequence[float | None]) -> Range | None:
    known = [value for value in values if value is not None]
    return Range(median(known), min(known), max(known)) if known else None


def written(tables: Sequence[Table]) -> Iterator[str]:
    """Yield the lines of a table: of one seed its figures, else of each row the median and both ends of the range."""
    first = tables[0]
    names = [f"{title:<{width}}" for title, width in first.names]
    titles = [f"{figure.title:>{figure.width}}" for figure in first.figures]
    several = len(tables) > 1
    yield " ".join([*names, *([f"{'':<7}"] if several else []), *titles])
    for row, found in ranges(tables):
        for kind in ("median", "lowest", "highest") if several else ("median",):
            named = [f"{name:<{width}}" for name, (_, width) in zip(row.names, first.names, strict=True)]
            cells = [
                figure.cell(None if of is None else getattr(of, kind), row.none)
                for figure, of in zip(first.figures, found, strict=True)
            ]
            yield " ".join([*named, *([f"{kind:<7}"] if several else []), *cells]).rstrip()


def told(tables: Sequence[Table]) -> dict[str, object]:
    """Return the ranges for JSON: by the names of the row, joined by ``, ``, and by the title of the figure."""
    figures = tables[0].figures
    return {
        ", ".join(row.names): {
            figure.title: None if of is None else {"median": of.median, "lowest": of.lowest, "highest": of.highest}
            for figure, of in zip(figures, found, strict=True)
        }
        for row, found in ranges(tables)
    }


def as_html(tables: Sequence[Table]) -> str:
    """Return the same as a table of a page; the range over several seeds is in brackets."""
    first = tables[0]
    titles = [*(title for title, _ in first.names), *(figure.title for figure in first.figures)]
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    rows = "".join(f"<tr>{_html_cells(row, found, first.figures)}</tr>" for row, found in ranges(tables))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _html_cells(row: Row, found: Sequence[Range | None], figures: Sequence[Figure]) -> str:
    cells = [*row.names]
    for figure, of in zip(figures, found, strict=True):
        cell = row.none if of is None else figure.write(of.median)
        if of is not None and of.lowest != of.highest:
            cell += f" ({figure.write(of.lowest)} to {figure.write(of.highest)})"
        cells.append(cell)
    return "".join(f"<td>{escape(cell)}</td>" for cell in cells)
