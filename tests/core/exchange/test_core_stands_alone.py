from __future__ import annotations

import ast
import sys
from pathlib import Path

import gateway.core

FOLDER = Path(gateway.core.__file__).parent
WORLD = {"asyncio", "threading", "time", "random", "os", "io", "socket", "pathlib", "subprocess", "logging", "datetime"}


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_the_core_imports_the_standard_library_numpy_policies_and_itself_only() -> None:
    foreign = {
        (path.name, name)
        for path in FOLDER.rglob("*.py")
        for name in imported(path)
        if not name.startswith("gateway.core")
        and name.split(".")[0] not in {"numpy", "policies", *sys.stdlib_module_names}
    }
    assert foreign == set()


def test_the_core_has_no_clock_and_no_world() -> None:
    worldly = {(path.name, name) for path in FOLDER.rglob("*.py") for name in imported(path) & WORLD}
    assert worldly == set()
    assert not any(
        isinstance(node, ast.AsyncFunctionDef | ast.Await)
        for path in FOLDER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
    )
