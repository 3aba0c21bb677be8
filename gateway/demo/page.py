"""The demo's page: one HTML file with its figures and Plotly's script inside, so that it needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from gateway.demo import plots
from gateway.demo.report import TITLES, Report, Runs, shortfalls, summary_rows

_CONTROLS = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"]}

_STYLE = """
body { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: #1f2937; background: #f6f7f9;
       margin: 0; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 28px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 0 0 4px; }
p { margin: 4px 0 12px; max-width: 90ch; } .lead { color: #4b5563; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 14px; margin: 20px 0; }
.card, section { background: #fff; border: 1px solid #e5e7eb; border-radius: 10px; }
.card { padding: 14px 18px; } .card b { display: block; font-size: 26px; line-height: 1.25; }
.card span { color: #4b5563; font-size: 14px; }
section { padding: 20px 22px 8px; margin: 18px 0; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 15px; margin-bottom: 14px; }
th, td { padding: 6px 10px; text-align: right; border-bottom: 1px solid #eef0f3; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; } thead th { border-bottom: 2px solid #d1d5db; }
.bad { background: #fdecea; border-color: #f2b8b5; }
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style><script>{script}</script></head>
<body><main>{body}</main></body></html>
"""


def write_page(report: Report, runs: Runs, path: Path) -> None:
    """Write the page to ``path``."""
    settings = report.config
    body = [
        _heading(report),
        _cards(report),
        _problems(report),
        _summary(report),
        figure_section(
            "Latency",
            "Mean latency of the mails completed in each second, whichever engine did them. Red dashes are the "
            "thresholds; upright lines are the moments a VM was started or stopped: dotted in the elastic run, solid "
            "in the compressed one.",
            plots.latencies(runs, settings),
        ),
        figure_section(
            "Load",
            "How many mails fell due each second: the same in all three runs. Latency counts from the moment a mail "
            "was due, so a queue that nobody reads cannot hide.",
            plots.input_rate(runs, report),
        ),
        figure_section(
            "What switching saw and did",
            "The dotted line is the private engine's latency, which the switching functions look at; the coloured one "
            "is all engines together. Behind them the life of the VMs: yellow while one starts, green while it can be "
            "used, grey while it drains. Red dashes: L_s, L_d and L_p as above.",
            plots.lanes(runs, settings),
        ),
        figure_section(
            "Across the WAN",
            "Which part of the mails went to the cloud, and how many bits a second that took; dotted what it would "
            "have been without trimming and compression.",
            plots.share_and_bytes(runs, settings),
        ),
    ]
    path.write_text(whole_page("Spillway demo", body), encoding="utf-8")


def whole_page(title: str, body: Sequence[str]) -> str:
    """Return a page of these parts, with all that it needs inside."""
    return _PAGE.format(title=escape(title), style=_STYLE, script=get_plotlyjs(), body="\n".join(body))


def _heading(report: Report) -> str:
    settings = report.config
    booted = (
        "really started Spark" if report.boot == "real" else "were Spark hosts warmed before, with emulated boot time"
    )
    emulated = f"a link of {settings.link_mbit_per_s:g} Mbit/s with {settings.link_delay_ms:g} ms each way"
    behind = escape(settings.wan or emulated)
    peak = max(segment.events_per_s for segment in settings.profile)
    return (
        "<h1>Spillway demo</h1>"
        f"<p class=lead>The same mail played three times to one private Spark engine that sustains "
        f"{report.capacity_events_per_s:,.0f} mails a second, with two spikes of {peak:,.0f}. In the elastic runs the "
        f"gateway rents up to {settings.max_vms} cloud VMs while the private engine cannot keep up, sends them part of "
        "the mail, puts the answers back in order, and gives the VMs back.</p>"
        f"<p class=lead>Mail: {escape(settings.mail)} ({settings.base_mails:,} mails, played again with new ids). VMs "
        f"{booted}; each sits behind {behind}, and is paid for by {settings.billing_period_s:g} s.</p>"
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
        ("no bytes" if ratio is None else f"{ratio:.2f}x", "bytes sent of the bytes before trimming and compression"),
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
        "<section><h2>Summary</h2><p>Latency runs from the moment a mail was due until an engine had its answer; "
        "delivery until the answer was released in order. Percentages are against private only.</p>"
        f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table></section>"
    )


def figure_section(title: str, text: str, figure: go.Figure) -> str:
    """Return a section of a page: a figure with what it shows."""
    drawn = figure.to_html(full_html=False, include_plotlyjs=False, config=_CONTROLS)
    return f"<section><h2>{title}</h2><p>{text}</p>{drawn}</section>"
