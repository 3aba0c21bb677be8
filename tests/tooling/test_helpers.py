"""Rules for tests: shared code is in helper modules, and tests change only public names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TEST_MODULE = re.compile(r"\.test_\w+(\.|$)")


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The modules that are imported anywhere, and for ``from a import b`` both ``a`` and ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def imports_of_test_modules(tree: ast.AST) -> list[int]:
    """The lines that import a module of tests."""
    return sorted({line for line, name in imported(tree) if name.startswith("tests.") and TEST_MODULE.search(name)})


def replaced_private_names(tree: ast.AST) -> list[int]:
    """The lines in which ``setattr`` or ``delattr`` gets a name that begins with an underscore but is no dunder."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node.func) in {"setattr", "delattr"}:
            given = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            if any(re.search(r"(^|\.)_(?!_)\w*$", text) for text in given):
                found.append(node.lineno)
    return found


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_no_module_imports_a_module_of_tests() -> None:
    assert len(TESTS) > 200
    found = {name(path) for path in TESTS if imports_of_test_modules(ast.parse(path.read_text()))}
    assert found == set(), "move what is shared to a module beside them, or to tests/support"


def test_nothing_private_is_replaced() -> None:
    found = {name(path) for path in TESTS if replaced_private_names(ast.parse(path.read_text()))}
    assert found == set(), "give what is under test an argument with a default"


@pytest.mark.parametrize(
    "text",
    [
        "from tests.cli.test_cli import main",
        "import tests.cli.test_cli as cli",
        "from tests.cli import test_cli",
        "def f():\n    from tests.cli.test_cli import main",
    ],
)
def test_an_import_of_a_module_of_tests_is_seen(text: str) -> None:
    assert imports_of_test_modules(ast.parse(text))


@pytest.mark.parametrize(
    "text", ["from tests.cli.simulating import testing", "import pytest", "from tests.support import waiting"]
)
def test_an_import_of_a_helper_is_none(text: str) -> None:
    assert imports_of_test_modules(ast.parse(text)) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('monkeypatch.setattr(module, "_TICK_S", 1)', [1]),
        ('patch.setattr("gateway.sinks.sink._TICK_S", 1)', [1]),
        ('setattr(thing, "_x", 1)', [1]),
        ('monkeypatch.setattr(os, "fsync", fail)', []),
        ('monkeypatch.setattr(RunLog, "__init__", remember)', []),
        ('monkeypatch.setattr("infra.statefiles.sync_folder", fail)', []),
    ],
)
def test_a_private_name_that_is_replaced_is_seen(text: str, lines: list[int]) -> None:
    assert replaced_private_names(ast.parse(text)) == lines
