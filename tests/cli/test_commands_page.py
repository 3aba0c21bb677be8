"""``docs/commands.md`` against the commands that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from gateway.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
ROW = re.compile(r"^\| `(?P<name>[a-z -]+)` \| .+ \| `spillway (?P<example>[^`]+)` \|$", re.MULTILINE)
ROWS = [(row["name"], row["example"]) for row in ROW.finditer(PAGE.read_text())]


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


KNOWN = dict(commands(typer.main.get_command(main)))


def test_the_page_has_each_command_once() -> None:
    assert sorted(name for name, _ in ROWS) == sorted(KNOWN)


@pytest.mark.parametrize(("name", "example"), ROWS)
def test_an_example_is_accepted_by_its_command(name: str, example: str) -> None:
    words = shlex.split(example)
    assert " ".join(words[: len(name.split())]) == name
    KNOWN[name].make_context(name, words[len(name.split()) :]).close()
