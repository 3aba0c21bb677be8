"""The code blocks of the documentation, and which documents there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```\s*$", re.MULTILINE | re.DOTALL
)
_VARIABLE: Final = re.compile(r"\$\{\w+(?::-(?P<default>[^}]*))?\}")


@dataclass(frozen=True)
class Block:
    """One code block: its document, the line of its fence (from 1), its language and its text."""

    path: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def documents() -> list[Path]:
    """Return what people read: the documents at the top, those of docker/, and those of docs/ without decisions."""
    found = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docker").rglob("*.md")]
    found += (path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions")
    return sorted(found)


def blocks(*languages: str) -> list[Block]:
    """Return the code blocks in one of the languages, in the order of the documents."""
    return [block for path in documents() for block in blocks_of(path) if block.language in languages]


def blocks_of(path: Path) -> Iterator[Block]:
    """Yield the code blocks of one document, without their indentation."""
    text = path.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        indent = len(match["indent"])
        lines = [line[indent:] for line in match["text"].splitlines()]
        yield Block(path, text.count("\n", 0, match.start()) + 1, match["language"], "\n".join(lines) + "\n")


def filled(text: str, value: str = "value") -> str:
    """Return a config in which each variable has its default, or ``value``."""
    return _VARIABLE.sub(lambda match: match["default"] or value, text)
