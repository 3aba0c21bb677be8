from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from gateway.demo import plots
from gateway.demo.load import RateSegment
from gateway.demo.page import write_page
from gateway.demo.report import (
    ModeRun,
    Reaction,
    Report,
    RunsByMode,
    make_report,
    reactions,
    shortfalls,
    summary_table,
    write_report,
)
from gateway.demo.verify import SinkVerdict
from gateway.views.figures import vm_lives
from gateway.views.runrecord import MarkKind, TimelineMark, read_record, write_record


def test_a_record_comes_back_from_its_file(tmp_path: Path, runs: RunsByMode) -> None:
    record = runs["elastic"].record
    write_record(record, tmp_path / "record.json")
    assert read_record(tmp_path / "record.json") == record


def test_a_file_that_is_no_record_is_named_with_its_field(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"totals": {}, "slots": [], "marks": [], "boot": "real"}')
    with pytest.raises(ValueError, match=r"record\.json is not a run record: .*`events`.*totals"):
        read_record(tmp_path / "record.json")


def test_the_json_has_the_promised_keys_for_each_mode(tmp_path: Path, report: Report) -> None:
    write_report(report, tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    for mode in ("private_only", "elastic", "elastic_compressed"):
        one = written[mode]
        assert list(one) == [
            "events", "results", "lost", "duplicated", "order_violations", "late",
            "latency_ms", "delivery_ms", "wan_bytes", "vms", "out_of_order", "reactions",
        ]  # fmt: skip
        assert list(one["latency_ms"]) == list(one["delivery_ms"]) == ["mean", "p50", "p95"]
        assert list(one["wan_bytes"]) == ["raw", "sent"]
        assert {"started", "stopped", "billed_s", "usd"} <= set(one["vms"])
    assert written["boot"] == "emulated"
    assert written["capacity_events_per_s"] == 5000
    assert written["config"]["start_vm_above_s"] == 3


def test_improvements_are_percent_of_private_only(report: Report) -> None:
    private, elastic = report.private_only.latency_ms.mean, report.elastic.latency_ms.mean
    assert report.improvements.elastic.mean_latency_percent == pytest.approx(100 * (1 - elastic / private))
    assert report.improvements.elastic_compressed.mean_latency_percent > 0
    assert report.improvements.elastic_compressed.sent_over_raw == pytest.approx(0.31, abs=0.001)


def test_counts_come_from_the_check_not_from_the_gateway(runs: RunsByMode, report: Report) -> None:
    bad = SinkVerdict(results=990, lost=10, duplicated=1, order_violations=2, late=3)
    runs["elastic"] = ModeRun(record=runs["elastic"].record, verdict=bad)
    judged = make_report(runs, report.config, 5000)
    assert (judged.elastic.results, judged.elastic.lost, judged.elastic.late) == (990, 10, 3)
    assert shortfalls(judged) == ["elastic: 10 lost", "elastic: 1 duplicated", "elastic: 2 out of order"]
    assert shortfalls(report) == []


def test_a_vm_that_was_not_stopped_is_a_shortfall(runs: RunsByMode, report: Report) -> None:
    record = runs["elastic"].record
    vms = msgspec.structs.replace(record.totals.vms, stopped=0)
    record = msgspec.structs.replace(record, totals=msgspec.structs.replace(record.totals, vms=vms))
    runs["elastic"] = ModeRun(record=record, verdict=runs["elastic"].verdict)
    assert shortfalls(make_report(runs, report.config, 5000)) == [f"elastic: {vms.started} VMs started, 0 stopped"]


def test_reactions_are_counted_from_the_beginning_of_each_spike() -> None:
    profile = [RateSegment(*each) for each in ((4, 10), (15, 90), (20, 10), (15, 90), (9, 10), (5, 90))]
    kinds: list[tuple[float, MarkKind, str]] = [
        (3.0, "vm_start", "a"),
        (3.5, "vm_gone", "a"),
        (6.0, "vm_start", "b"),
        (11.0, "vm_ready", "b"),
        (40.0, "vm_start", "c"),
        (50.0, "vm_stop", "b"),
        (56.0, "vm_ready", "c"),
        (58.0, "vm_stop", "c"),
    ]
    marks = [TimelineMark(at_s=at_s, kind=kind, vm=vm) for at_s, kind, vm in kinds]
    first, second, third = reactions(marks, profile)
    assert first == Reaction(launch_s=2.0, serve_s=7.0)
    assert second == Reaction(launch_s=None, serve_s=0.0), "the first VM is still there"
    assert third == Reaction(launch_s=None, serve_s=None)


def test_the_table_says_latency_and_its_gain(report: Report) -> None:
    console = Console(width=160, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(summary_table(report))
    line = next(line for line in capture.get().splitlines() if "mean latency" in line)
    assert f"{report.private_only.latency_ms.mean / 1000:.2f} s" in line
    assert f"(-{report.improvements.elastic.mean_latency_percent:.0f} %)" in line


def test_phases_of_a_vms_life_follow_its_marks() -> None:
    marks = (
        TimelineMark(at_s=5, kind="vm_start", vm="a"),
        TimelineMark(at_s=9, kind="vm_ready", vm="a"),
        TimelineMark(at_s=20, kind="vm_start", vm="b"),
        TimelineMark(at_s=25, kind="vm_stop", vm="a"),
        TimelineMark(at_s=27, kind="vm_gone", vm="a"),
    )
    assert vm_lives(marks, 30) == [
        ("a", "starting", 5, 9),
        ("a", "up", 9, 25),
        ("a", "stopping", 25, 27),
        ("b", "starting", 20, 30),
    ]


def test_the_latency_plot_has_three_runs_thresholds_and_each_vm_start_and_stop(
    runs: RunsByMode, report: Report
) -> None:
    figure = plots.latencies(runs, report.config)
    assert len(figure.data) == 3
    assert list(figure.data[0].x) == [slot.at_s for slot in runs["private_only"].record.slots]
    levels = {shape.y0 for shape in figure.layout.shapes if shape.y0 == shape.y1}
    assert {3, 2, 1} <= levels
    upright = sorted(shape.x0 for shape in figure.layout.shapes if shape.x0 == shape.x1)
    wanted = [mark.at_s for run in runs.values() for mark in run.record.marks if mark.kind in ("vm_start", "vm_stop")]
    assert upright == sorted(wanted)


def test_the_page_stands_alone_and_labels_its_axes(tmp_path: Path, runs: RunsByMode, report: Report) -> None:
    path = tmp_path / "report.html"
    write_page(report, runs, path)
    page = path.read_text(encoding="utf-8")
    assert not re.search(r"""<(?:script|link|img)[^>]*\b(?:src|href)=""", page)
    for label in ("mean latency (s)", "mails due (1/s)", "events sent to the cloud (%)", "across the WAN (Mbit/s)"):
        assert label.replace("/", "\\u002f") in page or label in page
    assert "Not as it should be" not in page


def test_the_page_says_what_is_wrong(tmp_path: Path, runs: RunsByMode, report: Report) -> None:
    runs["elastic"] = ModeRun(
        record=runs["elastic"].record, verdict=msgspec.structs.replace(runs["elastic"].verdict, lost=4)
    )
    write_page(make_report(runs, report.config, 5000), runs, tmp_path / "report.html")
    assert "elastic: 4 lost" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_run_without_vms_or_traffic_can_be_drawn(tmp_path: Path, runs: RunsByMode, report: Report) -> None:
    empty = msgspec.structs.replace(runs["private_only"].record, slots=(), marks=())
    none: RunsByMode = {mode: ModeRun(record=empty, verdict=run.verdict) for mode, run in runs.items()}
    write_page(make_report(none, report.config, 5000), none, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 1_000_000
