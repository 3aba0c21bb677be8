"""What the bench makes of its figures, and that its rows run with the gateway's code of today."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from suite.report import BenchTold, compared, missed, number, read, told
from suite.row import Row
from suite.rows import NAMES
from suite.turns import OURS, Goal, Sample, Spread, found, order, spread, wrong_answers
from suite.whole import growth, idle

from infra.wan import WanUnavailableError
from tests.wan.wan_site import not_run

ROOT = Path(__file__).parents[2]


def turns(*figures: tuple[float, float]) -> list[dict[str, Sample]]:
    return [{OURS: Sample({"events/s": ours}), "peer": Sample({"events/s": peer})} for ours, peer in figures]


def row(*goals: Goal) -> Row:
    return Row("one", "a row", {OURS: lambda: Sample({}), "peer": lambda: Sample({})}, goals, "")


def test_sides_take_turns_so_that_none_is_always_first() -> None:
    assert order(["a", "b", "c"], 2) == [(0, "a"), (0, "b"), (0, "c"), (1, "c"), (1, "b"), (1, "a")]


def test_a_side_that_is_compared_with_nothing_is_measured_twice() -> None:
    assert order(["a", "b"], 4, frozenset("b")) == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (3, "a")]
    both, one = {"a": Sample({"s": 1.0}), "b": Sample({"s": 4.0})}, {"a": Sample({"s": 3.0})}
    assert spread("s", "b", [both, one]) == Spread(4.0, 4.0, 4.0)


def test_a_ratio_is_of_one_turn_so_that_a_slow_minute_is_no_difference() -> None:
    assert found(Goal("events/s", "peer", 2.0), turns((20.0, 10.0), (2.0, 1.0), (30.0, 10.0))) == Spread(2.0, 2.0, 3.0)
    assert found(Goal("events/s", None, 20.0), turns((20.0, 10.0), (2.0, 1.0), (30.0, 10.0))) == Spread(20.0, 2.0, 30.0)


@pytest.mark.parametrize(("at_least", "holds"), [(True, [False, True, True]), (False, [True, True, False])])
def test_a_goal_is_a_least_or_a_most(at_least: bool, holds: list[bool]) -> None:
    goal = Goal("events/s", "peer", 2.0, at_least=at_least)
    assert [goal.holds(ratio) for ratio in (1.9, 2.0, 2.1)] == holds


def test_a_side_that_computes_something_else_is_named() -> None:
    same, other, none = Sample({}, "a"), Sample({}, "b"), Sample({})
    assert wrong_answers([{OURS: same, "peer": same, "limit": none}, {OURS: same, "peer": other, "limit": none}]) == [
        "peer"
    ]


def test_what_changed_is_told_for_goals_that_both_have() -> None:
    peer, alone = Goal("events/s", "peer", 2.0), Goal("events/s", None, 15.0)
    before = BenchTold(1, "old", 7, {"one": told(row(peer), turns((10.0, 10.0)))})
    now = BenchTold(1, "new", 7, {"one": told(row(peer, alone), turns((25.0, 10.0)))})
    assert compared(before, now) == [("one", "events/s", "peer", "1", "2.5")]
    assert missed(before.rows) == ["one: events/s: 1 times peer, goal at least 2"]
    assert not missed(now.rows)


def test_numbers_show_three_digits() -> None:
    shown = {0.0123: "0.0123", 1.5: "1.5", 99.9: "99.9", 123.4: "123", 1_234_567.0: "1,234,567"}
    assert {value: number(value) for value in shown} == shown


def test_another_file_is_no_bench(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"old\.json is no result of make bench"):
        read(path)
    path.write_text(json.dumps({"format": 0, "machine": "", "turns": 7, "rows": {}}))
    with pytest.raises(ValueError, match="has format 0; this bench reads 1: measure again"):
        read(path)


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(ROOT), str(ROOT / "bench")))
    env = {**os.environ, "PYTHONPATH": path, "SPILLWAY_BENCH_S": "0.01"}
    command = [sys.executable, "-m", "suite", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)


# These are made of the parts of other rows: light, and payload.
MADE_OF_OTHERS = ("heavy", "start", "direct", "handover", "mail", "tweets", "ticks")
# Differences of two measurements of a moment each, which noise may make negative.
DIFFERENCES = {"idle": {idle.MEMORY, idle.CPU, idle.HOST_CPU}, "growth": {growth.PER_LANE}}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in MADE_OF_OTHERS])
def test_a_row_runs_all_sides_compute_the_same_and_few_turns_write_no_document(name: str, tmp_path: Path) -> None:
    document = (ROOT / "docs" / "results" / "bench.md").read_bytes()
    out = tmp_path / "bench.json"
    ran = bench(name, "--turns", "1", "--out", str(out))
    if "can have no WAN" in ran.stdout:
        not_run(WanUnavailableError(ran.stdout))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    measured = read(out)
    assert list(measured.rows) == [name]
    figures = {figure: value for side in measured.rows[name].sides.values() for figure, value in side.items()}
    differences = DIFFERENCES.get(name, set())
    assert differences <= figures.keys()
    assert all(math.isfinite(value) for value in figures.values())
    assert all(value > 0 for figure, value in figures.items() if figure not in differences)
    assert measured.rows[name].goals
    assert (ROOT / "docs" / "results" / "bench.md").read_bytes() == document


def test_an_unknown_row_is_refused() -> None:
    ran = bench("nothing")
    assert ran.returncode == 2
    assert "there is no row nothing: choose from light" in ran.stderr
