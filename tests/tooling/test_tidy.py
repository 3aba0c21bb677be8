"""House rules that a machine can check: sizes, leftovers, and paths of a particular machine."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("gateway", "engines", "policies", "infra")
MODULE_LINES_MAX = 400
TEST_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
MODULES_MAX = 12
LEFTOVERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|NotImplemented" r"Error)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.$}-])/(root|home/\w+|Users/\w+|work)/")


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        return sorted(path for name in (*PACKAGES, "tests") for path in (ROOT / name).rglob("*.py"))
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def sources(*tops: str) -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in tops]


def test_there_is_something_to_look_at() -> None:
    assert len(sources(*PACKAGES)) > 50


@pytest.mark.parametrize(("tops", "most"), [(PACKAGES, MODULE_LINES_MAX), (("tests",), TEST_LINES_MAX)])
def test_no_module_is_too_long(tops: tuple[str, ...], most: int) -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources(*tops)}
    assert {name: length for name, length in lengths.items() if length > most} == {}


def test_no_folder_has_too_many_modules() -> None:
    modules = [path for path in sources(*PACKAGES) if path.name != "__init__.py"]
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in modules)
    assert {folder: count for folder, count in folders.items() if count > MODULES_MAX} == {}


def test_every_folder_of_modules_says_what_it_is_for() -> None:
    folders = {path.parent for path in sources(*PACKAGES)}
    silent = [
        str(folder.relative_to(ROOT))
        for folder in folders
        if not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    ]
    assert silent == []


def test_no_function_is_too_long() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sources(*PACKAGES)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert long == []


def test_nothing_is_left_for_later() -> None:
    found = [str(path.relative_to(ROOT)) for path in sources(*PACKAGES, "tests") if LEFTOVERS.search(path.read_text())]
    assert found == []


def test_no_file_names_a_path_of_some_machine() -> None:
    text_files = [path for path in tracked() if path.suffix in {".py", ".md", ".yaml", ".toml", ".txt", ".xml", ""}]
    found = [str(path.relative_to(ROOT)) for path in text_files if MACHINE_PATHS.search(path.read_text())]
    assert found == []


def test_no_exception_is_swallowed_without_a_word() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources(*PACKAGES)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}))
        and all(isinstance(statement, ast.Pass | ast.Continue) for statement in node.body)
    ]
    assert silent == []


def test_only_one_module_decides_what_becomes_of_work_whose_caller_is_cancelled() -> None:
    found = [str(path.relative_to(ROOT)) for path in sources(*PACKAGES) if "asyncio.shield" in path.read_text()]
    assert found == ["infra/together.py"]
