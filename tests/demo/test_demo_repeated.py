"""Several demos: the order of their modes, and the median and range of their figures."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.demo.repeated import order, read_reports, repeated_rows, spread, write_reports
from gateway.demo.report import TITLES, Report, RunsByMode, make_report

ROOT = Path(__file__).parents[2]


def test_in_three_runs_each_mode_is_first_once_and_last_once() -> None:
    orders = [order(run) for run in range(3)]
    assert {each[0] for each in orders} == {each[-1] for each in orders} == set(TITLES)
    assert all(sorted(each) == sorted(TITLES) for each in orders)
    assert order(0) == tuple(TITLES)
    assert order(5) == order(2)


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=9))
def test_the_spread_does_not_depend_on_the_order(values: list[float]) -> None:
    assert spread(values, str) == spread(values[::-1], str)
    assert (str(max(values)) in spread(values, str)) or len(values) == 1


def slower(report: Report, factor: float) -> Report:
    latency_ms = replace(report.elastic.latency_ms, mean=report.elastic.latency_ms.mean * factor)
    return replace(report, elastic=replace(report.elastic, latency_ms=latency_ms))


def test_a_row_tells_median_and_range_of_each_mode(report: Report, tmp_path: Path) -> None:
    reports = [slower(report, factor) for factor in (3.0, 1.0, 2.0)]
    write_reports(reports, tmp_path / "runs.json")
    assert read_reports(tmp_path / "runs.json") == reports
    alone, elastic, _ = repeated_rows(reports)
    mean_s = report.elastic.latency_ms.mean / 1e3
    assert elastic[:2] == ("elastic", f"{2 * mean_s:.2f} s ({mean_s:.2f} s to {3 * mean_s:.2f} s)")
    assert elastic[2].startswith(f"{-report.improvements.elastic.mean_latency_percent:+.0f} %")
    assert alone[2] == ""
    assert [name for name, *_ in repeated_rows([report])] == list(TITLES.values())


def test_the_table_of_the_readme_has_cold_beside_warm(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    bench = import_module("readme_demo")
    warm, cold = [slower(report, factor) for factor in (1.0, 2.0)], [replace(report, boot="real")]
    head, rule, *rows = bench.text({"warm": warm, "cold": cold}).splitlines()
    assert "warm: boot of 5 s emulated, Spark warmed up before, 2 runs" in head
    assert "cold: each VM really starts its Spark, 1 runs" in head
    assert {line.count("|") for line in (head, rule, *rows)} == {6}
    assert [row.split(" | ")[0] for row in rows] == [f"| {title}" for title in TITLES.values()]
    with pytest.raises(ValueError, match="the cold runs booted otherwise: emulated"):
        bench.text({"cold": warm})
    text = (ROOT / "README.md").read_text()
    assert text.count("<!-- demo: written by the command -->") == text.count("<!-- end of demo -->") == 1


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs.json").write_text('[{"boot": "real"}]')
    with pytest.raises(ValueError, match=r"runs\.json does not contain the reports"):
        read_reports(tmp_path / "runs.json")


def test_a_report_says_in_which_order_it_was_played(runs: RunsByMode, report: Report) -> None:
    other = make_report(runs, replace(report.config, order=order(1)), 5000)
    assert other.config.order[0] == "elastic"
    assert report.config.order == order(0)
