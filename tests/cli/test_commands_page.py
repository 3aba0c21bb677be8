"""``docs/commands.md`` against the commands that there are."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(shell: str) -> None:
    typed = {"COMP_WORDS": "spillway dr", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "spillway dr"}
    asked = {"_SPILLWAY_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    program = [str(Path(sys.executable).with_name("spillway"))]
    environ = {**os.environ, **typed, **asked}
    said = subprocess.run(program, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert "drain-vm" in said.stdout, said.stderr
    assert "stop-vm" not in said.stdout
