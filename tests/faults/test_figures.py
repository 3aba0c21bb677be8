"""The goals of the fault tests: a missed one fails, and says what was measured and what was wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import figures as module
from tests.faults.figures import Figure, Figures, Measure, slowness

READY = Measure("ready after", 4.0, 3.0, "s")
OLD = """
| fault | times | outcome | measured | goal | day |
| --- | --- | --- | --- | --- | --- |
| worker | 900 | fine | runs 80 | runs >= 20 | 2025-12-31 |
| fuzzing | 7 | fine |  |  | 2025-12-31 |
"""
RESENT = Measure("runs re-sent", 35, 100, at_least=True)


def figures(slow: float = 1.0, *, judge_times: bool = True, kept: Path | None = None) -> Figures:
    return Figures(judge_times=judge_times, kept=kept, calibrate=lambda: slow, today=lambda: "2026-01-02")


def test_a_missed_goal_fails_with_figure_and_goal_and_is_kept_all_the_same() -> None:
    found = figures()
    with pytest.raises(AssertionError, match=r"kill: measured ready after 4 s, the goal is ready after <= 3 s"):
        found.add("kill", READY, times=1, outcome="0 lost")
    assert [row.fault for row in found.rows] == ["kill"]
    assert found.rows[0].line == "| kill | 1 | 0 lost | **missed: ready after 4 s** | ready after <= 3 s | 2026-01-02 |"


def test_a_slow_machine_has_more_time_and_no_other_excuse() -> None:
    found = figures(1.5)
    found.add("kill", READY, times=1, outcome="0 lost")
    assert "ready after 4 s |" in found.rows[0].line
    assert "times 1.5: a slow machine" in found.rows[0].line
    with pytest.raises(AssertionError, match=r"runs re-sent 35, the goal is runs re-sent >= 100"):
        found.add("kill", READY, RESENT, times=1, outcome="0 lost")


def test_short_forms_judge_all_but_times() -> None:
    found = figures(judge_times=False)
    found.add("kill", READY, Measure("home's 99th percentile", 9.0, 1.1, "x"), times=1, outcome="0 lost")
    with pytest.raises(AssertionError, match="runs re-sent"):
        found.add("kill", RESENT, times=1, outcome="0 lost")


@pytest.mark.parametrize(("number", "met"), [(99.0, False), (100.0, True), (101.0, True)])
def test_a_goal_itself_is_enough(number: float, *, met: bool) -> None:
    assert Measure("at least", number, 100, at_least=True).met(1.0) is met
    assert Measure("at most", -number, -100).met(1.0) is met


def test_a_machine_is_never_faster_than_the_one_of_the_goals() -> None:
    found = figures(0.5)
    found.add("kill", Measure("ready after", 3.0, 3.0, "s"), times=1, outcome="0 lost")
    assert found.rows[0].slow == 1.0
    assert slowness() > 0


def test_a_row_is_judged_by_the_speed_that_the_machine_had_while_it_was_measured() -> None:
    speeds = [*[2.0] * 11, *[1.0] * 20]
    found = Figures(judge_times=True, calibrate=lambda: speeds.pop(0))
    for _ in range(11):
        found.sample()
    found.add("kill", READY, times=11, outcome="0 lost")  # it takes five more samples
    assert found.rows[0].slow == 2.0
    with pytest.raises(AssertionError, match=r"a machine 1\.00 times as slow"):
        found.add("the next kill", READY, times=1, outcome="0 lost")


def test_rows_of_several_runs_are_written_into_their_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "KEPT", tmp_path / "build" / "faults.json")
    page = tmp_path / "page.md"
    page.write_text(f"before\n<!-- figures: make faults -->\n{OLD}\n<!-- end of figures -->\nafter\n")
    for number in (50, 120, 110):
        run = figures(kept=module.KEPT)
        run.add("worker", Measure("runs", number, 20, at_least=True), times=1000, outcome="fine", page="page.md")
        run.add(f"other {number > 100}", times=1, outcome="fine", page="page.md")
    module.write_pages()
    assert page.read_text().splitlines() == [
        "before",
        "<!-- figures: make faults -->",
        "",
        "| fault | times | outcome | measured | goal | day |",
        "| --- | --- | --- | --- | --- | --- |",
        "| worker | 1,000 | fine | runs 110 | runs >= 20 | 2026-01-02 |",
        "| fuzzing | 7 | fine |  |  | 2025-12-31 |",
        "| other False | 1 | fine |  |  | 2026-01-02 |",
        "| other True | 1 | fine |  |  | 2026-01-02 |",
        "",
        "<!-- end of figures -->",
        "after",
    ]
    with pytest.raises(AssertionError):
        figures(kept=module.KEPT).add("worker", Measure("runs", 19, 20, at_least=True), times=2, outcome="fine")
    assert '"times": 2' in module.KEPT.read_text()  # a run that fails or is ended keeps what it measured
    assert Figure.kept({"fault": "f", "times": 1, "outcome": "o", "measures": []}) == Figure("f", 1, "o")
