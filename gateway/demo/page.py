"""The demo's page: one HTML file with its figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from gateway.demo import plots
from gateway.demo.report import TITLES, Report, RunsByMode, shortfalls, summary_rows
from gateway.views.page import figure_section, whole_page


def write_page(report: Report, runs: RunsByMode, path: Path, sections: Sequence[str] = ()) -> None:
    """Write the page to ``path``; ``sections`` are more of it, as HTML."""
    settings = report.config
    body = [
        _heading(report),
        _cards(report),
        _problems(report),
        _summary(report),
        *sections,
        figure_section(
            "Latency",
            "Mean latency of the mails completed in each second, on all engines. Dashed red lines are the thresholds. "
            "Vertical lines mark when a VM was started or stopped: dotted in the elastic run, solid in the "
            "compressed one.",
            plots.latencies(runs, settings),
        ),
        figure_section(
            "Load",
            "How many mails were due in each second; all three runs have the same load. Latency is measured from the "
            "time when a mail was due, so it includes the wait in a backlog.",
            plots.input_rate(runs, report),
        ),
        figure_section(
            "What switching measured and did",
            "The dotted line is the latency of the private engine, which the switching functions use; the coloured "
            "line is that of all engines. The background shows the VMs: yellow while one starts, green while it can be "
            "used, grey while it drains. Dashed red lines: L_s, L_d and L_p as above.",
            plots.lanes(runs, settings),
        ),
        figure_section(
            "Across the WAN",
            "The part of the mails that went to the cloud, and the bits per second that were sent; the dotted line is "
            "without trimming and compression.",
            plots.share_and_bytes(runs, settings),
        ),
    ]
    path.write_text(whole_page("Spillway demo", body), encoding="utf-8")


def _heading(report: Report) -> str:
    settings = report.config
    booted = (
        "started a real Spark"
        if report.boot == "real"
        else "were Spark hosts warmed up before, with an emulated boot time"
    )
    emulated = f"a link of {settings.link_mbit_per_s:g} Mbit/s with {settings.link_delay_ms:g} ms each way"
    behind = escape(settings.wan or emulated)
    peak = max(segment.events_per_s for segment in settings.profile)
    return (
        "<h1>Spillway demo</h1>"
        f"<p class=lead>The same mail replayed three times to one private Spark engine that sustains "
        f"{report.capacity_events_per_s:,.0f} mails a second, with two spikes of {peak:,.0f}. In the elastic runs the "
        f"gateway rents up to {settings.max_vms} cloud VMs while the private engine cannot keep up, sends them part of "
        "the mail, puts the answers back in order, and terminates the VMs.</p>"
        f"<p class=lead>Mail: {escape(settings.mail)} ({settings.base_mails:,} mails, played again with new ids). VMs "
        f"{booted}; each is behind {behind}, and is billed in periods of {settings.billing_period_s:g} s.</p>"
    )


def _cards(report: Report) -> str:
    gains = report.improvements
    wrong = sum(
        one.lost + one.duplicated + one.order_violations
        for one in (report.private_only, report.elastic, report.elastic_compressed)
    )
    ratio = gains.elastic_compressed.sent_over_raw
    cards = [
        (_less(gains.elastic.mean_latency_percent), "mean latency, elastic against private only"),
        (_less(gains.elastic_compressed.mean_latency_percent), "mean latency, trimmed and compressed"),
        (
            "no bytes" if ratio is None else f"{ratio:.2f}x",
            "bytes sent, relative to those before trimming and compression",
        ),
        (f"{wrong:,}", "answers lost, repeated or out of order, counted independently"),
    ]
    return (
        "<div class=cards>" + "".join(f"<div class=card><b>{big}</b><span>{small}</span></div>" for big, small in cards)
        + "</div>"
    )  # fmt: skip


def _less(percent: float) -> str:
    return f"{percent:.0f} % less" if percent >= 0 else f"{-percent:.0f} % more"


def _problems(report: Report) -> str:
    items = "".join(f"<li>{escape(problem)}</li>" for problem in shortfalls(report))
    return f"<section class=bad><h2>Not as it should be</h2><ul>{items}</ul></section>" if items else ""


def _summary(report: Report) -> str:
    head = "".join(f"<th>{title}</th>" for title in TITLES.values())
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in summary_rows(report)
    )
    return (
        "<section><h2>Summary</h2><p>Latency is the time from when a mail was due until an engine had its answer; "
        "delivery, until the answer was released in order. Percentages are against private only.</p>"
        f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table></section>"
    )
