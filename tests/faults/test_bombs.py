"""Small inputs that decode to large ones are refused quickly, in little memory. Each test uses its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.link.frames import MAX_PAYLOAD_BYTES
from tests.faults.bombs import BOMBS
from tests.faults.figures import Figures

# What a noisy machine may add in the suite. The figure is reported without it.
SLACK_S = 2.0
GOAL_S = 0.05


def detonated(name: str) -> dict[str, float]:
    """Pass a bomb to its decoder in a new process, and return the time and memory that this took."""
    program = Path(__file__).with_name("bombs.py")
    done = subprocess.run(
        [sys.executable, str(program), name], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{name}: exit code {done.returncode}\n{done.stderr[-2000:]}"
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_little_time_and_memory(name: str, figures: Figures) -> None:
    cost = detonated(name)
    figures.add(
        f"bomb: {name}",
        times=3,
        outcome="refused",
        figure=f"{1000 * cost['took_s']:.1f} ms, {cost['grew_bytes'] / 2**20:.0f} MiB",
        goal=f"<= {1000 * GOAL_S:.0f} ms, <= {2 * MAX_PAYLOAD_BYTES // 2**20} MiB",
    )
    assert cost["took_s"] < GOAL_S + SLACK_S
    assert cost["grew_bytes"] <= 2 * MAX_PAYLOAD_BYTES
