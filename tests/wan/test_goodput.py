"""The link's goodput beside one plain TCP stream, as ``bench/wan_goodput.py`` measures it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra.wan import Wan
from tests.faults.figures import WAN, Figures, Measure, only_full

BENCH = Path(__file__).parents[2] / "bench" / "wan_goodput.py"
GOAL = 0.95
# With the window that engine hosts grant.
MEDIAN = re.compile(r"16384 kB, median: ([\d.]+)")


@only_full("it measures for minutes")
@pytest.mark.timeout(900)
def test_the_link_fills_the_line_as_plain_tcp_does(started_wan: Wan, figures: Figures) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH)], cwd=BENCH.parents[1], capture_output=True, text=True, timeout=800, check=False
    )
    found = MEDIAN.search(done.stdout)
    assert found, done.stdout + done.stderr
    figures.add(
        "goodput at 80 ms, 50 Mbit/s",
        Measure("of one plain TCP stream", float(found[1]), GOAL, "x", at_least=True),
        times=3,
        outcome="streams that take turns",
        page=WAN,
    )
