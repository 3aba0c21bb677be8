"""The gateway's half of a query is killed at every step of a replay of dead letters."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.file_parts import parts

EVENTS = 200
BAD = ("not an event", '{"id": "x"}')
DEADLINE_S = 60.0


def ended(folder: Path, mode: str, failpoints: str = "") -> int:
    script = Path(__file__).parents[1] / "support" / "gateway_process.py"
    environment = {**os.environ, "SPILLWAY_FAILPOINTS": failpoints}
    command = [sys.executable, "-W", "error", str(script), str(folder), mode]
    return subprocess.run(
        command, env=environment, timeout=DEADLINE_S, check=False, stdout=subprocess.DEVNULL
    ).returncode


def ids(folder: Path) -> list[int]:
    out = folder / "out"
    return sorted(json.loads(text)["id"] for name in parts(out) for text in (out / name).read_text().splitlines())


def dead(folder: Path) -> Counter[str]:
    """Return the contents of the dead letters, in whichever file they are."""
    files = [folder / "dead.jsonl", *(folder / "replay").glob("*.jsonl")]
    return Counter(
        json.loads(text)["raw"] for file in files if file.exists() for text in file.read_bytes().splitlines()
    )


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query that has ended; every tenth event was bad, and some lines were not events."""
    place = tmp_path_factory.mktemp("poisoned")
    lines = [json.dumps({"id": i, "text": "x"}) for i in range(EVENTS)]
    lines[100:100] = BAD
    (place / "in.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    assert ended(place, "poison") == 0
    assert ids(place) == sorted(2 * [i for i in range(EVENTS) if i % 10 != 5])
    assert dead(place).total() == 2 * (EVENTS // 10 + len(BAD))
    return place


@pytest.fixture
def folder(poisoned: Path, tmp_path: Path) -> Path:
    """A copy of that query, for one test."""
    return shutil.copytree(poisoned, tmp_path / "query")


@pytest.mark.parametrize(
    "failpoint",
    [
        "deadletters.replay.before=kill@1",
        "deadletters.replay.noted=kill@1",
        "deadletters.replay.moved=kill@1",
        "deadletters.replay.after=kill@1",
        "deadletters.append.before=kill@1",
        "deadletters.append.written=kill@1",
        "deadletters.append.after=kill@1",
        "runlog.append.written=kill@2",
        "runlog.append.after=kill@3",
        "sink.commit.visible=kill@1",
        "",
        "deadletters.replay.forgotten=kill@1",
    ],
)
def test_killed_at_any_step_each_letter_comes_back_once(folder: Path, failpoint: str) -> None:
    if failpoint:
        assert ended(folder, "replay", failpoint) == -9
    assert ended(folder, "replay") == 0
    assert ids(folder) == sorted(2 * list(range(EVENTS)))
    assert dead(folder) == Counter(dict.fromkeys(BAD, 2))
    letters = [json.loads(text) for text in (folder / "dead.jsonl").read_bytes().splitlines()]
    assert {letter["raw"] for letter in letters} == set(BAD)
    assert all(letter["reason"].startswith("replayed: ") for letter in letters)
    assert list((folder / "replay").iterdir()) == []
