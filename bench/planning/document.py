"""Tables in Markdown, and their places in the document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, text_columns: int = 1) -> str:
    """Return a table; the first columns are text, the others are right-aligned."""
    rule = ["---"] * text_columns + ["---:"] * (len(header) - text_columns)
    lines = [header, rule, *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def put(document: Path, section: str, text: str) -> None:
    """Replace the text between the marks of a section.

    Raises:
        ValueError: the document lacks the marks.
    """
    begin, end = f"<!-- {section}: written by the command -->\n", f"\n<!-- end of {section} -->"
    before, found, rest = document.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{document} has no place for {section}: it needs the lines {begin.strip()} and {end.strip()}")
    document.write_text(before + begin + text + end + after)
