"""The result of simulated graphs as one HTML file with its figures and Plotly's script inside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go

from engines.simulated.metrics import MetricsBin
from gateway.simulate.graphs.playing import MINUTE_S, SECOND_S, ConsumerOutcome, GraphsOutcome
from gateway.views.figures import finished
from gateway.views.page import figure_section, whole_page

_TITLE = "Spillway simulation of graphs"
_SECONDS_MAX = 1440
_VERTICES_MAX = 30
_FILL = {"up": "#9fd3b0", "down": "#e0766b"}


def write_graph_page(outcome: GraphsOutcome, path: Path) -> None:
    """Write the page to ``path``."""
    part = "minute" if _by_minute(outcome) else "second"
    body = [
        _heading(outcome),
        _consumers(outcome),
        figure_section(
            "Latency",
            f"For each consumer and {part}, the mean latency of what it consumed (CEPSim, equation 6). Parts in which "
            "it consumed nothing have no point.",
            metric_by_time(
                outcome, "latency (s)", [[one.latency_s for one in _bins(outcome, c)] for c in outcome.consumers]
            ),
        ),
        figure_section(
            "Throughput",
            f"For each consumer and {part}, the producers' events a second that its events stand for (equation 10).",
            metric_by_time(
                outcome,
                "events a second",
                [[one.throughput_per_s for one in _bins(outcome, c)] for c in outcome.consumers],
            ),
        ),
        figure_section(
            "Waiting events",
            f"Events in the queues of each vertex; of the {_VERTICES_MAX} vertices with the longest queues, if there "
            "are more.",
            waiting(outcome),
        ),
        _vertices(outcome),
        figure_section("VMs", "Green: the VM executes. Red: it has failed.", lives_of_vms(outcome)),
        _vms(outcome),
    ]
    path.write_text(whole_page(_TITLE, body), encoding="utf-8")


def _heading(outcome: GraphsOutcome) -> str:
    lasted = f"{outcome.lasted_s:g} s in ticks of {outcome.tick_s * 1000:g} ms, in virtual time"
    return f"<h1>{_TITLE}</h1><p class=lead>CEPSim's model: {lasted}.</p>"


def _by_minute(outcome: GraphsOutcome) -> bool:
    return outcome.lasted_s > _SECONDS_MAX


def _bins(outcome: GraphsOutcome, consumer: ConsumerOutcome) -> Sequence[MetricsBin]:
    return consumer.by_minute if _by_minute(outcome) else consumer.by_second


def metric_by_time(outcome: GraphsOutcome, title: str, values: Sequence[Sequence[float | None]]) -> go.Figure:
    """Return a chart with a line for each consumer; a value is at the end of its part of the time."""
    part_s = MINUTE_S if _by_minute(outcome) else SECOND_S
    figure = go.Figure()
    for consumer, line in zip(outcome.consumers, values, strict=True):
        times_s = [min(outcome.lasted_s, (at + 1) * part_s) for at in range(len(line))]
        # What is consumed once in a window is a point between parts without any.
        figure.add_trace(
            go.Scatter(x=times_s, y=list(line), mode="lines+markers", marker={"size": 4}, name=consumer.name)
        )
    figure.update_yaxes(title=title, rangemode="tozero")
    return finished(figure, height=360)


def waiting(outcome: GraphsOutcome) -> go.Figure:
    """Return a chart of the events in the queues of vertices."""
    figure = go.Figure()
    most = sorted(range(len(outcome.vertices)), key=lambda at: -outcome.vertices[at].most_waiting_events)
    for at in sorted(most[:_VERTICES_MAX]):
        times_s = [at_s for at_s, _ in outcome.queues]
        line = [waiting_events[at] for _, waiting_events in outcome.queues]
        figure.add_trace(go.Scatter(x=times_s, y=line, mode="lines", name=outcome.vertices[at].name))
    figure.update_yaxes(title="waiting events", rangemode="tozero")
    return finished(figure, height=400)


def lives_of_vms(outcome: GraphsOutcome) -> go.Figure:
    """Return a chart of when VMs executed and when they were down."""
    figure = go.Figure()
    for at, vm in enumerate(outcome.vms):
        phases = [("up", vm.ready_s, vm.ends_s), *(("down", from_s, to_s) for from_s, to_s in vm.down_s)]
        for phase, from_s, to_s in phases:
            if from_s < to_s:
                figure.add_shape(
                    type="rect", x0=from_s, x1=to_s, y0=at - 0.35, y1=at + 0.35, line={"width": 0},
                    fillcolor=_FILL[phase],
                )  # fmt: skip
        figure.add_trace(
            go.Scatter(x=[0.0, outcome.lasted_s], y=[at, at], mode="lines", line={"width": 0}, name=vm.name)
        )
    names = [vm.name for vm in outcome.vms]
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, range=[-0.6, len(names) - 0.4])
    return finished(figure, height=130 + 40 * len(names), legend=False)


def _section(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<section><h2>{title}</h2><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></section>"


def _consumers(outcome: GraphsOutcome) -> str:
    rows = (
        (
            one.name,
            f"{one.events:,.0f}",
            "-" if one.latency_s is None else f"{one.latency_s:,.2f} s",
            f"{one.throughput_per_s:,.1f}/s",
        )
        for one in outcome.consumers
    )
    return _section(
        f"Consumers, measured from {outcome.measured_from_s:g} s on", ("", "events", "latency", "throughput"), rows
    )


def _vertices(outcome: GraphsOutcome) -> str:
    rows = (
        (
            one.name,
            one.vm,
            f"{one.processed_events:,.0f}",
            f"{one.waiting_events:,.0f}",
            f"{one.most_waiting_events:,.0f}",
            f"{one.dropped_events:,.0f}",
            f"{one.lost_events:,.0f}",
        )
        for one in outcome.vertices
    )
    head = ("", "VM", "processed", "waiting at the end", "waiting at most", "dropped", "lost")
    return _section("Vertices", head, rows)


def _vms(outcome: GraphsOutcome) -> str:
    rows = (
        (
            one.name,
            f"{one.host} ({one.datacentre})",
            f"{one.up_s:,.0f} s",
            f"{one.failures}",
            f"{one.used:.1%}",
            f"{one.billed_s:,.0f} s",
            f"{one.sent_bytes / 1e6:,.1f} MB",
            f"{one.usd:.4f} USD",
        )
        for one in outcome.vms
    )
    head = ("", "host", "up", "failures", "used", "billed", "sent to other data centres", "cost")
    return _section(f"VMs, together {outcome.usd:.4f} USD", head, rows)
