"""The gateway's half of a query is killed with SIGKILL again and again, at moments that depend on its own progress."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from gateway.journal.deadletters import DeadLetter
from tests.support.file_parts import parts

EVENTS = 2_500
BAD_EVERY = 500
DEADLINE_S = 60.0


def start(folder: Path) -> subprocess.Popen[bytes]:
    script = Path(__file__).parents[1] / "support" / "gateway_process.py"
    return subprocess.Popen([sys.executable, "-W", "error", str(script), str(folder)])


def kill_after(process: subprocess.Popen[bytes], folder: Path, new_parts: int) -> bool:
    """Kill the process once it has written this many parts; return False if it ended by itself before."""
    before = len(parts(folder / "out")) if (folder / "out").exists() else 0
    give_up_s = time.monotonic() + DEADLINE_S
    while process.poll() is None:
        assert time.monotonic() < give_up_s
        if (folder / "out").exists() and len(parts(folder / "out")) >= before + new_parts:
            process.kill()
            process.wait()
            return True
        time.sleep(0.002)  # it has a core to share with what it watches
    assert process.returncode == 0
    return False


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_again_and_again_nothing_is_lost_or_doubled(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    lines = []
    for i in range(EVENTS):
        lines.append(json.dumps({"id": i, "text": "x" * dice.randint(0, 50)}))
        if i % BAD_EVERY == 3:
            lines.append("not an event")
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    kills = 0
    while kill_after(process := start(tmp_path), tmp_path, dice.randint(1, 12)):
        kills += 1
        if kills == 6:
            process = start(tmp_path)
            assert process.wait(DEADLINE_S) == 0
            break
    assert kills >= 3
    folder = tmp_path / "out"
    ids = [json.loads(text)["id"] for name in parts(folder) for text in (folder / name).read_text().splitlines()]
    assert sorted(ids) == sorted([*range(EVENTS), *range(EVENTS)])
    letters = [
        msgspec.json.decode(text, type=DeadLetter) for text in (tmp_path / "dead.jsonl").read_bytes().splitlines()
    ]
    bad = [i for i, text in enumerate(lines) if text == "not an event"]
    assert [letter.record for letter in letters] == [*bad, *(len(lines) + i for i in bad)]
    on_time = [name for name in parts(folder) if ".late." not in name]
    assert on_time == sorted(on_time, key=lambda name: name[11:23])
