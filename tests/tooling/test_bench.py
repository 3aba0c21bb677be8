"""What the Makefile runs is in git, with what it imports of ours: a fresh clone lacks a file that git ignores."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath
from symtable import symtable

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("gateway", "engines", "policies", "infra", "tests")
SCRIPTS = re.compile(r"(?<![\w/.-])(?:\.ci|bench|docker|examples|tests)/[\w./-]*\w")
MODULES = re.compile(r"-m ((?:bench|" + "|".join(OURS) + r")\b[\w.]*)")


@cache
def in_git() -> frozenset[str]:
    """The files of a fresh clone. A copy without git has all files that it was given."""
    if not (ROOT / ".git").exists():
        found = (path for top in (".ci", "bench", "docker", *OURS) for path in (ROOT / top).rglob("*"))
        return frozenset(path.relative_to(ROOT).as_posix() for path in found if path.is_file())
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return frozenset(listed.split("\0")) - {""}


# These are in the environment of make frameworks.
ELSEWHERE = frozenset({"faust", "quixstreams"})


@cache
def libraries() -> frozenset[str]:
    return frozenset(packages_distributions()) | sys.stdlib_module_names


def bench() -> list[str]:
    return sorted(file for file in in_git() if file.startswith("bench/") and file.endswith(".py"))


def file_of(module: str, files: Iterable[str], tops: Iterable[str] = ("", "bench")) -> str | None:
    """The file of a module that is imported by a script in ``bench``, where Python looks, too."""
    found = [PurePosixPath(top, *module.split(".")) for top in tops]
    names = [name for path in found for name in (f"{path}.py", f"{path}/__init__.py")]
    return next((name for name in names if name in files), None)


@cache
def names_in(file: str) -> frozenset[str]:
    """The names that a module has once it is imported, and the modules of a package."""
    table = symtable((ROOT / file).read_text(), file, "exec")
    return frozenset(
        name.get_name()
        for name in table.get_symbols()
        if name.is_assigned() or name.is_imported() or name.is_namespace()
    )


def imports_in(text: str) -> Iterator[tuple[str, str | None]]:
    """Each module that is imported anywhere, and each name that is taken from it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((module, alias.name) for alias in node.names)


def missing(text: str, files: frozenset[str]) -> list[str]:
    """What a script in ``bench`` imports that is neither in these files nor in a library."""
    found = []
    for module, name in imports_in(text):
        top = module.partition(".")[0]
        file = file_of(module, files)
        if file is None:
            if top in OURS or top not in libraries() | ELSEWHERE or file_of(top, files) is not None:
                found.append(module)
        elif name is not None and name not in names_in(file) and file_of(f"{module}.{name}", files) is None:
            found.append(f"{module}.{name}")
    return found


def run_by(makefile: str) -> set[str]:
    """The scripts, folders and modules of ours that the commands of a Makefile name."""
    commands = "\n".join(line for line in makefile.splitlines() if line.startswith("\t"))
    modules = MODULES.findall(commands)
    return {*SCRIPTS.findall(commands), *(module.replace(".", "/") + ".py" for module in modules)}


def test_bench_imports_only_what_is_in_git() -> None:
    assert len(bench()) > 20
    found = {file: missing((ROOT / file).read_text(), in_git()) for file in bench()}
    assert {file: modules for file, modules in found.items() if modules} == {}


def test_every_script_of_the_makefile_is_in_git() -> None:
    scripts = run_by((ROOT / "Makefile").read_text())
    assert scripts > {"bench/reproduce_state.py", ".ci/java", "docker/build", "tests/faults", "tests/faults/figures.py"}
    folders = {parent.as_posix() for file in in_git() for parent in PurePosixPath(file).parents}
    assert scripts - in_git() - folders == set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from state.balancing import report", ["state.balancing"]),
        ("import planning.nothing", ["planning.nothing"]),
        ("def f():\n    from planning import nothing", ["planning.nothing"]),
        ("from planning.document import nothing", ["planning.document.nothing"]),
        ("from policies.nothing import balance", ["policies.nothing"]),
        ("import nothing_that_is_installed", ["nothing_that_is_installed"]),
        ("from .document import put", [".document"]),
        ("import os.path\nimport numpy.linalg\nfrom collections.abc import Iterator", []),
        ("from planning import document\nfrom planning.document import put, table", []),
        ("from infra.payload import CODECS\nfrom tests.support import waiting", []),
    ],
)
def test_an_import_of_what_is_missing_is_seen(text: str, said: list[str]) -> None:
    without = frozenset(file for file in in_git() if not file.startswith("bench/state/"))
    assert missing(text, without) == said


def test_a_script_that_a_makefile_names_is_seen() -> None:
    makefile = "bench/a.py: x\n\t$(BIN)/python bench/lost.py --table\n\t@.ci/lost; $(BIN)/python -m tests.faults.lost"
    assert run_by(makefile) == {"bench/lost.py", ".ci/lost", "tests/faults/lost.py"}
