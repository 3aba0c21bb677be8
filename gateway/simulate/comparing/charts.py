"""The figures of a contest of policies as Plotly graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gateway.simulate.comparing.contest import Contest
from gateway.simulate.fluid.outcomes import FluidOutcome
from gateway.simulate.fluid.tally import Point
from gateway.views.figures import THRESHOLD, finished, vm_lives
from gateway.views.runrecord import MarkKind, TimelineMark
from policies.switching.query import QuerySettings

_COLOURS = ("#5b6472", "#d9730d", "#1667c7", "#2e8b57", "#8e44ad", "#b8860b", "#c2185b", "#00838f")
_FILL = {"starting": "#f3c35f", "up": "#9fd3b0", "stopping": "#b8bcc2"}
_FIGURES_MOST = 6
_KINDS: Mapping[str, MarkKind] = {"start": "vm_start", "ready": "vm_ready", "end": "vm_stop", "gone": "vm_gone"}
_FAR_APART = 20.0
"""If the largest latency is this many times the smallest, or the thresholds, its axis is logarithmic."""
_ROOM = 0.08
"""Room at both ends of the cost axis, as a part of it: names are beside the points."""
_PLACES = ("top center", "bottom center", "top right", "bottom right")
_BINS = 100
_LATENCY_BINS = 240
_LEAST_S = 0.01


def frontier(contest: Contest) -> go.Figure:
    """Mean latency of each policy over its cost, and the line of the policies that no other one beats."""
    figure = go.Figure()
    points = sorted((one.usd, one.mean_s, name) for name, one in contest.outcomes.items())
    line = {"color": "#9aa3af", "dash": "dot", "shape": "hv"}
    best = unbeaten([(usd, mean_s) for usd, mean_s, _ in points])
    figure.add_trace(go.Scatter(x=[usd for usd, _ in best], y=[s for _, s in best], mode="lines", line=line, name=""))
    colours = {name: _COLOURS[at % len(_COLOURS)] for at, name in enumerate(contest.outcomes)}
    optimum_usd = () if contest.optimum is None else (contest.optimum.renting_usd,)
    most_usd = max((*(usd for usd, _, _ in points), *optimum_usd)) or 1.0
    for (usd, mean_s, name), place in zip(points, places([usd for usd, _, _ in points], most_usd), strict=True):
        figure.add_trace(
            go.Scatter(
                x=[usd], y=[mean_s], mode="markers+text", text=[name], textposition=place, name=name,
                marker={"size": 12, "color": colours[name]}, textfont={"color": colours[name]},
                hovertemplate="%{x:.4f} USD, %{y:.2f} s",
            )
        )  # fmt: skip
    for usd in optimum_usd:
        note = {"text": "optimum", "font": {"color": THRESHOLD}}
        upright = {"color": THRESHOLD, "dash": "dash", "width": 1}
        figure.add_vline(x=usd, line=upright, annotation=note, annotation_position="bottom right")
    figure = finished(figure, height=460, legend=False)
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(title="spent (USD)", range=[-_ROOM * most_usd, (1 + _ROOM) * most_usd], showspikes=False)
    seen_s = [mean_s for _, mean_s, _ in points if mean_s > 0]
    far = bool(seen_s) and max(seen_s) > _FAR_APART * min(seen_s)
    _axis_of_latency(figure, "mean latency (s)", logarithmic=far)
    return figure


def unbeaten(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points (cost, latency), cheapest first, for which no other is as cheap and faster."""
    best: list[tuple[float, float]] = []
    for usd, mean_s in sorted(points):
        if not best or mean_s < best[-1][1]:
            best.append((usd, mean_s))
    return best


def places(costs_usd: Sequence[float], most_usd: float) -> list[str]:
    """Return where each name goes, for points ordered by cost, so that neighbours do not overlap."""
    found: list[str] = []
    for at, usd in enumerate(costs_usd):
        near = at > 0 and usd - costs_usd[at - 1] < 1.5 * _ROOM * most_usd
        found.append(_PLACES[(_PLACES.index(found[-1]) + 1) % len(_PLACES)] if near else _PLACES[0])
    return found


def _axis_of_latency(figure: go.Figure, title: str, *, logarithmic: bool, **where: int) -> None:
    """Set the scale of a latency axis, at this row and column."""
    if logarithmic:
        figure.update_yaxes(title=title, type="log", dtick=1, exponentformat="none", **where)
    else:
        figure.update_yaxes(title=title, rangemode="tozero", **where)


def latencies(contest: Contest, queries: tuple[QuerySettings, ...]) -> go.Figure:
    """Latency over time, a row for each of the first queries, a line for each policy."""
    shown = queries[:_FIGURES_MOST]
    height = 130 + 270 * len(shown)
    figure = make_subplots(
        rows=len(shown),
        shared_xaxes=True,
        vertical_spacing=min(0.3, 44 / height),
        subplot_titles=[query.name for query in shown],
    )
    for row, query in enumerate(shown, start=1):
        where = {"row": row, "col": 1}
        lines = {name: _latency_of(outcome.points, row - 1) for name, outcome in contest.outcomes.items()}
        for at, (name, line) in enumerate(lines.items()):
            figure.add_trace(
                go.Scatter(
                    x=[at_s for at_s, _ in line],
                    y=[latency_s for _, latency_s in line],
                    name=name,
                    legendgroup=name,
                    showlegend=row == 1,
                    line={"color": _COLOURS[at % len(_COLOURS)], "width": 2},
                    hovertemplate="%{y:.2f} s",
                ),
                **where,
            )
        most_s = max((value for line in lines.values() for _, value in line if value is not None), default=0.0)
        far = most_s > _FAR_APART * query.switching.start_vm_above_s
        _axis_of_latency(figure, "latency (s)", logarithmic=far, **where)
        _thresholds(figure, query, logarithmic=far, **where)
    return finished(figure, height=height, right=44)


def _latency_of(points: Sequence[Point], query: int) -> list[tuple[float, float | None]]:
    """Return (end in s, mean latency) of equal parts of the time; None if nothing was completed."""
    told: list[tuple[float, float | None]] = []
    for some in _grouped(points, _LATENCY_BINS):
        seen_s = [value for point in some if (value := point.latency_s[query]) is not None]
        told.append((some[-1].until_s, max(_LEAST_S, sum(seen_s) / len(seen_s)) if seen_s else None))
    return told


def _grouped(points: Sequence[Point], bins: int) -> list[Sequence[Point]]:
    step = max(1, -(-len(points) // bins))
    return [points[at : at + step] for at in range(0, len(points), step)]


def _thresholds(figure: go.Figure, query: QuerySettings, *, logarithmic: bool, row: int, col: int) -> None:
    """Draw L_s, L_d and L_p, with names beside the figure so that they cover no curve."""
    switching = query.switching
    for letter, limit_s, yanchor in (
        ("L_s", switching.start_vm_above_s, "bottom"),
        ("L_d", switching.send_above_s, "middle"),
        ("L_p", switching.keep_vm_above_s, "top"),
    ):
        line = {"color": THRESHOLD, "dash": "dash", "width": 1}
        figure.add_hline(y=limit_s, line=line, row=row, col=col)
        # Plotly places notes on a logarithmic axis by exponents.
        if limit_s > 0 or not logarithmic:
            figure.add_annotation(
                text=letter, x=1.005, xref="x domain", xanchor="left", yanchor=yanchor, showarrow=False,
                y=math.log10(limit_s) if logarithmic else limit_s, font={"color": THRESHOLD, "size": 11},
                row=row, col=col,
            )  # fmt: skip


def over_time(contest: Contest) -> go.Figure:
    """VMs, money spent and misses of each policy."""
    figure = make_subplots(rows=3, shared_xaxes=True, vertical_spacing=0.06)
    most_vms = 1
    for at, (name, outcome) in enumerate(contest.outcomes.items()):
        line = {"color": _COLOURS[at % len(_COLOURS)], "width": 2}
        points = outcome.points
        common = {"name": name, "legendgroup": name}
        stairs = {**line, "shape": "vh"}
        times_s = [point.until_s for point in points]
        most_vms = max(most_vms, *(point.vms for point in points))
        figure.add_trace(go.Scatter(x=times_s, y=[point.vms for point in points], line=stairs, **common), row=1, col=1)
        quiet = {**common, "showlegend": False}
        spent = go.Scatter(
            x=times_s, y=[point.usd for point in points], line=line, hovertemplate="%{y:.4f} USD", **quiet
        )
        figure.add_trace(spent, row=2, col=1)
        bins = missed(points)
        late = go.Scatter(
            x=[at_s for at_s, _ in bins], y=[part for _, part in bins], line=stairs, hovertemplate="%{y:.1f} %", **quiet
        )
        figure.add_trace(late, row=3, col=1)
    figure.update_yaxes(title="VMs", rangemode="tozero", tickformat="d", row=1, col=1)
    if most_vms <= _FAR_APART / 2:
        figure.update_yaxes(dtick=1, row=1, col=1)
    figure.update_yaxes(title="spent (USD)", rangemode="tozero", row=2, col=1)
    figure.update_yaxes(title="late events (%)", range=[0, 102], row=3, col=1)
    return finished(figure, height=680)


def missed(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return (end in s, late events in %) of about a hundred equal parts of the time, mean over queries and points."""
    parts = []
    for some in _grouped(points, _BINS):
        of_point = [100 * sum(point.missed) / max(1, len(point.missed)) for point in some]
        parts.append((some[-1].until_s, sum(of_point) / len(of_point)))
    return parts


def lives(contest: Contest) -> go.Figure:
    """When VMs started, served and were terminated, a row for each policy."""
    figure = go.Figure()
    names = list(contest.outcomes)
    for at, (name, outcome) in enumerate(contest.outcomes.items()):
        strips = list(_strips(outcome))
        thick = 0.8 / (1 + max((strip for *_, strip in strips), default=0))
        for phase, from_s, to_s, strip in strips:
            bottom = at - 0.4 + strip * thick
            figure.add_shape(
                type="rect", x0=from_s, x1=to_s, y0=bottom, y1=bottom + 0.9 * thick, line={"width": 0},
                fillcolor=_FILL[phase],
            )  # fmt: skip
        figure.add_trace(go.Scatter(x=[0.0, outcome.lasted_s], y=[at, at], mode="lines", line={"width": 0}, name=name))
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, range=[-0.6, len(names) - 0.4])
    return finished(figure, height=120 + 60 * len(names), legend=False)


def _strips(outcome: FluidOutcome) -> Iterable[tuple[str, float, float, int]]:
    """Yield (phase, from_s, to_s, strip): VMs that exist at the same time get separate strips."""
    marks = tuple(TimelineMark(at_s=at_s, kind=_KINDS[what], vm=vm) for at_s, vm, what in outcome.vm_marks)
    phases = list(vm_lives(marks, outcome.lasted_s))
    until_s = {vm: max(to_s for other, _, _, to_s in phases if other == vm) for vm, *_ in phases}
    free_s: list[float] = []
    strips: dict[str, int] = {}
    for vm, phase, from_s, to_s in sorted(phases, key=lambda one: one[2]):
        if vm not in strips:
            strip = next((at for at, free in enumerate(free_s) if free <= from_s), len(free_s))
            free_s[strip : strip + 1] = [until_s[vm]]
            strips[vm] = strip
        yield phase, from_s, to_s, strips[vm]
