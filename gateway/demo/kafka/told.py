"""Tells who carried the mails: as a table for the terminal, and as sections of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from rich.table import Table

from gateway.demo.kafka.carried import CarriedBy, CarriedRun, rates_per_s
from gateway.demo.kafka.turns import HandOver
from gateway.demo.report import TITLES, Mode
from gateway.views.figures import finished
from gateway.views.page import figure_section
from infra.messages import CHECKPOINT_S

_WHO: Final = {
    "spark": ("Spark by itself", "#2e7d4f"),
    "gateway": ("the gateway, at home", "#5b6472"),
    "vms": ("VMs", "#1667c7"),
}
_TITLE: Final = "Who carried the mails"
_TEXT: Final = (
    "Spark at home reads the mails and writes the answers by itself while it keeps the target. When answers are late, "
    "the gateway takes partitions over, and may send their mails to VMs. In this demo, latency and delivery are both "
    "the time from when a mail was due until the broker had its answer."
)
_HAND_OVERS_SHOWN: Final = 40


def carried_rows(carried: Mapping[Mode, CarriedBy]) -> list[tuple[str, ...]]:
    """Return the figures as (what, one cell for each mode)."""
    modes = [carried[mode] for mode in TITLES]
    rows = [
        (f"mails carried by {_WHO['spark'][0]}", [_part(each.spark, each) for each in modes]),
        (f"mails carried by {_WHO['gateway'][0]}", [_part(each.gateway, each) for each in modes]),
        (f"mails carried by {_WHO['vms'][0]}", [_part(each.vms, each) for each in modes]),
        ("hand-overs to the gateway", [str(len(each.hand_overs)) for each in modes]),
        ("from the first mail to the first hand-over", [_first(each.hand_overs) for each in modes]),
        ("how long hand-overs lasted", [_lengths(each.hand_overs) for each in modes]),
    ]
    return [(what, *cells) for what, cells in rows]


def carried_table(carried: Mapping[Mode, CarriedBy]) -> Table:
    """Return the figures for a terminal."""
    table = Table(title=_TITLE)
    table.add_column("")
    for title in TITLES.values():
        table.add_column(title, justify="right")
    for row in carried_rows(carried):
        table.add_row(*row)
    return table


def carried_sections(runs: Mapping[Mode, CarriedRun]) -> list[str]:
    """Return the figures as sections of the page, with a chart over time, and each hand-over."""
    carried = {mode: run.carried for mode, run in runs.items()}
    chart = figure_section(
        f"{_TITLE}, over time",
        f"Mails a second. Spark tells its progress each {CHECKPOINT_S:g} s, which is shown as even over that time. "
        "Grey: the gateway has taken over some partitions.",
        carried_chart(runs),
    )
    rows = carried_rows(carried)
    head = ["", *TITLES.values()]
    summary = f"<section><h2>{_TITLE}</h2><p>{_TEXT}</p>{_table(head, rows)}</section>"
    return [summary, chart, _each_hand_over(carried)]


def carried_chart(runs: Mapping[Mode, CarriedRun]) -> go.Figure:
    """Return for each mode the mails a second by who carried them."""
    figure = make_subplots(
        rows=len(runs),
        shared_xaxes=True,
        shared_yaxes="all",
        vertical_spacing=0.06,
        subplot_titles=[TITLES[mode] for mode in runs],
    )
    for row, run in enumerate(runs.values(), start=1):
        times_s = [slot.at_s for slot in run.record.slots]
        for who, rates in rates_per_s(run.record.slots).items():
            name, colour = _WHO[who]
            line = {"color": colour, "shape": "vh", "width": 0.5}
            common = {"stackgroup": str(row), "legendgroup": who, "showlegend": row == 1}
            figure.add_trace(go.Scatter(x=times_s, y=rates.tolist(), name=name, line=line, **common), row=row, col=1)
        for from_s, to_s in _spans(run.carried.hand_overs):
            figure.add_vrect(
                x0=from_s, x1=to_s, fillcolor="rgba(120,120,120,0.16)", line_width=0, layer="below", row=row, col=1
            )
        figure.update_yaxes(title="mails (1/s)", rangemode="tozero", row=row, col=1)
    return finished(figure, height=760)


def _spans(found: Sequence[HandOver]) -> list[tuple[float, float]]:
    """Return the times in which the gateway had some partitions, without overlaps."""
    spans: list[tuple[float, float]] = []
    for each in sorted(found, key=lambda one: one.at_s):
        from_s, to_s = each.at_s, each.at_s + each.lasted_s
        if spans and from_s <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(to_s, spans[-1][1]))
        else:
            spans.append((from_s, to_s))
    return spans


def _each_hand_over(carried: Mapping[Mode, CarriedBy]) -> str:
    rows = [
        (TITLES[mode], ", ".join(map(str, one.partitions)), f"{one.at_s:.1f} s", _length(one), one.reason)
        for mode, each in carried.items()
        for one in each.hand_overs
    ]
    if not rows:
        return ""
    left_out = (
        f"<p>{len(rows) - _HAND_OVERS_SHOWN} more are in report.json.</p>" if len(rows) > _HAND_OVERS_SHOWN else ""
    )
    head = ("", "partitions", "after", "lasted", "why")
    return f"<section><h2>Hand-overs</h2>{_table(head, rows[:_HAND_OVERS_SHOWN])}{left_out}</section>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    titles = "".join(f"<th>{escape(each)}</th>" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _part(events: int, of: CarriedBy) -> str:
    return f"{events:,} ({events / max(1, of.spark + of.gateway + of.vms):.0%})"


def _first(found: Sequence[HandOver]) -> str:
    return f"{min(each.at_s for each in found):.1f} s" if found else "-"


def _lengths(found: Sequence[HandOver]) -> str:
    return ", ".join(_length(each) for each in found) or "-"


def _length(one: HandOver) -> str:
    return f"{one.lasted_s:.0f} s" if one.returned else f"{one.lasted_s:.0f} s (to the end)"
