"""Small inputs that ask for much: refused quickly, in little memory, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.link.frames import MAX_PAYLOAD_BYTES
from tests.faults.bombs import BOMBS
from tests.faults.figures import Figures

# What a noisy machine may add in the suite; the figure is reported as it is.
SLACK_S = 2.0
GOAL_S = 0.05


def detonated(name: str) -> dict[str, float]:
    """Offer a bomb to the code that would meet it, in a new process; return what that took."""
    program = Path(__file__).with_name("bombs.py")
    done = subprocess.run(
        [sys.executable, str(program), name], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{name}: exit code {done.returncode}\n{done.stderr[-2000:]}"
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_little_time_and_memory(name: str, figures: Figures) -> None:
    told = detonated(name)
    figures.add(
        f"bomb: {name}",
        times=3,
        outcome="refused",
        figure=f"{1000 * told['took_s']:.1f} ms, {told['grew_bytes'] / 2**20:.0f} MiB",
        goal=f"<= {1000 * GOAL_S:.0f} ms, <= {2 * MAX_PAYLOAD_BYTES // 2**20} MiB",
    )
    assert told["took_s"] < GOAL_S + SLACK_S
    assert told["grew_bytes"] <= 2 * MAX_PAYLOAD_BYTES
