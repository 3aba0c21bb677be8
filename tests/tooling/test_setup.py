"""The two commands on a fresh clone: what they run, what they report as missing, and what is locked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def locked() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def dependencies(project: dict[str, Any]) -> list[str]:
    """The requirements of the package, of its extras, and of those who work on it."""
    groups, extras = project["dependency-groups"], project["project"]["optional-dependencies"]
    of_extras = [text for name, texts in extras.items() if name != "all" for text in texts]
    return [*project["project"]["dependencies"], *of_extras, *groups["dev"], *groups["docs"]]


def test_every_dependency_is_locked_to_a_version_it_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = dependencies(project)
    versions = locked()
    for requirement in map(Requirement, [*wanted, *project["build-system"]["requires"], "pip>=25.1"]):
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        assert name in versions
        assert requirement.specifier.contains(versions[name]), requirement


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    explained = (ROOT / "docs" / "dependencies.md").read_text()
    wanted = dependencies(project)
    missing = [name for name in (Requirement(text).name for text in wanted) if f"`{name}`" not in explained]
    assert missing == []


def test_the_extra_all_has_all_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (every,) = map(Requirement, extras["all"])
    assert every.name == "spillway"
    assert every.extras == set(extras) - {"all"}


def planned(*arguments: str) -> str:
    command = ["make", "--dry-run", *arguments]
    # These tests are run by make too; what it passes on to a make below it is not wanted here.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    planned = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return planned.stdout


def test_demo_passes_the_mail_on() -> None:
    assert planned("demo", "MAIL=some/inbox.mbox.gz").rstrip().endswith('spillway demo --mail "some/inbox.mbox.gz"')
    assert planned("demo").rstrip().endswith("spillway demo")


def test_demo_from_kafka_has_a_broker_around_it() -> None:
    steps = planned("demo", "KAFKA=1", "QUICK=1").rstrip().splitlines()
    wanted = (
        ".venv/bin/python -m tests.connectors.around build/demo-broker .venv/bin/spillway demo --kafka BROKER "
        "--connector build/spark-kafka/jars --quick"
    )
    assert " ".join(steps[-1].split()) == wanted
    brought = [step for step in steps if "ci/broker" in step]
    assert brought == [".ci/broker", ".ci/broker bench/suite/pom.xml build/spark-kafka"]


@pytest.mark.parametrize("command", ["demo", "test"])
def test_commands_set_up_and_look_for_java_first(command: str) -> None:
    plan = planned("--always-make", command)
    steps = [plan.index(step) for step in ("-m venv", "pip install --quiet -c constraints.txt", ".ci/java")]
    assert steps == sorted(steps)
    assert plan.rstrip().splitlines()[-1].startswith(".venv/bin/")


def test_ci_runs_what_people_run() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert script.rstrip().endswith('make check\nmake test\nwait "$worlds"\nmake package')
    check = planned("check")
    parts = (
        "ruff check",
        "ruff format --check",
        "mypy",
        "lint-imports",
        "mkdocs build --strict -f .ci/site/mkdocs.yml",
    )
    assert all(part in check for part in parts)


def java_check(tmp_path: Path, java: str | None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the check with only the tools that it needs and, if ``java`` is given, a java that prints it."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "env", "sed", "grep", "head"):
        (tools / name).symlink_to(str(shutil.which(name)))
    (tools / "id").write_text("#!/usr/bin/env bash\necho 1000\n")
    if java is not None:
        (tools / "java").write_text(f"#!/usr/bin/env bash\necho '{java}' >&2\n")
    for name in ("id", "java"):
        if (tools / name).exists():
            (tools / name).chmod(0o755)
    told = {"PATH": str(tools), **environ}
    return subprocess.run([str(ROOT / ".ci" / "java")], env=told, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("says", ['openjdk version "17.0.20" 2026-07-21', 'java version "21" 2023-09-19'])
def test_a_java_that_spark_can_use_is_enough(tmp_path: Path, says: str) -> None:
    done = java_check(tmp_path, says)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("java", "says"),
    [
        (None, "PATH has none"),
        ('openjdk version "11.0.2" 2019-01-15', "PATH has Java 11"),
        ('java version "1.8.0_292"', "PATH has Java 8"),
        ("what?", "PATH has none"),
    ],
)
def test_without_it_one_sentence_says_how(tmp_path: Path, java: str | None, says: str) -> None:
    done = java_check(tmp_path, java)
    assert done.returncode == 1
    assert says in done.stderr
    assert "apt-get install" in done.stderr
    assert done.stderr.count("\n") == 1


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    done = java_check(tmp_path, 'openjdk version "17.0.20"', JAVA_HOME=str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert "JAVA_HOME" in done.stderr


def test_scripts_may_be_run() -> None:
    assert all(
        os.access(ROOT / ".ci" / name, os.X_OK)
        for name in ("run", "java", "broker", "installed", "browser", "prometheus", "wan", "package")
    )
