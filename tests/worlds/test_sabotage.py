"""Each mistake that is put into the core is found by the check that is known to find it at the least cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worlds.mistakes import MISTAKES, Mistake

SCRIPT = Path(__file__).with_name("sabotage.py")


@pytest.fixture(scope="module")
def findings() -> dict[str, dict[str, object]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), "--cheapest"]
    played = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=580)
    found = [json.loads(line) for line in played.stdout.splitlines()]
    return {str(each["mistake"]): each for each in found}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_found(mistake: Mistake, findings: dict[str, dict[str, object]]) -> None:
    assert findings[mistake.name]["found"], findings[mistake.name]


def test_the_same_checks_find_nothing_in_the_code_as_it_is(findings: dict[str, dict[str, object]]) -> None:
    wrong = {name: each for name, each in findings.items() if name.startswith("none") and each["found"]}
    assert not wrong
    assert any(name.startswith("none") for name in findings)
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES) >= 24


def test_a_mistake_whose_text_is_gone_fails_loudly(tmp_path: Path) -> None:
    mistake = Mistake("none", "module", "gone", "new")
    (tmp_path / "module.py").write_text("here", encoding="utf-8")
    with pytest.raises(ValueError, match="0 times 'gone'"):
        mistake.applied(tmp_path)
