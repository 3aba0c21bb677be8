"""The demo's figures as Plotly graphs, after Figures 7 and 8 of ESM."""

from __future__ import annotations

from itertools import chain, pairwise

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gateway.demo.report import TITLES, Mode, Report, RunsByMode, Settings
from gateway.views.figures import THRESHOLD, finished, vm_lives
from gateway.views.runrecord import GatewayRecord, Slot

COLOURS: dict[Mode, str] = {"private_only": "#5b6472", "elastic": "#d9730d", "elastic_compressed": "#1667c7"}
VM_FILL = {
    "starting": "rgba(240, 180, 60, 0.22)",
    "up": "rgba(60, 160, 90, 0.14)",
    "stopping": "rgba(120,120,120,0.16)",
}
ELASTIC: tuple[Mode, ...] = ("elastic", "elastic_compressed")


def input_rate(runs: RunsByMode, report: Report) -> go.Figure:
    """Events due a second, as Figure 7; it is the same in all runs, so one is drawn."""
    slots = runs["private_only"].record.slots
    figure = go.Figure(
        go.Scatter(
            x=[slot.at_s for slot in slots],
            y=[slot.input_rate for slot in slots],
            line={"color": COLOURS["private_only"], "shape": "vh"},
            fill="tozeroy",
            name="due",
        )
    )
    figure.add_hline(
        y=report.capacity_events_per_s,
        line={"color": THRESHOLD, "dash": "dash", "width": 1.5},
        annotation={"text": "rate that the private engine sustains", "font": {"color": THRESHOLD}},
        annotation_position="top right",
    )
    figure.update_yaxes(title="mails due (1/s)", rangemode="tozero")
    return finished(figure, height=280, legend=False)


def latencies(runs: RunsByMode, settings: Settings) -> go.Figure:
    """Mean latency of the events completed in each slot, all lanes, three runs in one figure, as Figure 8."""
    figure = go.Figure()
    for mode, run in runs.items():
        figure.add_trace(_latency_line(run.record.slots, mode, TITLES[mode]))
    _add_thresholds(figure, settings)
    for mode in ELASTIC:
        for mark in runs[mode].record.marks:
            if mark.kind in ("vm_start", "vm_stop"):
                dash = "dot" if mode == "elastic" else "solid"
                figure.add_vline(x=mark.at_s, line={"color": COLOURS[mode], "dash": dash, "width": 1})
    figure.update_yaxes(title="mean latency (s)", rangemode="tozero")
    return finished(figure, height=440, right=170)


def lanes(runs: RunsByMode, settings: Settings) -> go.Figure:
    """For each run, the latency that switching uses (L_t of the private lane) and all lanes, over the VMs' lives."""
    figure = make_subplots(
        rows=len(runs),
        shared_xaxes=True,
        shared_yaxes="all",
        vertical_spacing=0.06,
        subplot_titles=[TITLES[mode] for mode in runs],
    )
    for row, (mode, run) in enumerate(runs.items(), start=1):
        private = [_seconds(slot.latency_ms) for slot in run.record.slots]
        line = {"color": "#111827", "width": 1.3, "dash": "dot"}
        figure.add_trace(
            go.Scatter(
                x=_times(run.record.slots),
                y=private,
                name="private lane, L_t",
                line=line,
                legendgroup="private",
                showlegend=row == 1,
            ),
            row=row,
            col=1,
        )
        figure.add_trace(_latency_line(run.record.slots, mode, TITLES[mode]), row=row, col=1)
        _add_vm_life(figure, run.record, row)
        _add_thresholds(figure, settings, row=row)
        figure.update_yaxes(title="latency (s)", rangemode="tozero", row=row, col=1)
    return finished(figure, height=760)


def share_and_bytes(runs: RunsByMode, settings: Settings) -> go.Figure:
    """Share of the events sent to cloud lanes, and the bits per second, before and after compression."""
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.09)
    for mode in ELASTIC:
        slots = runs[mode].record.slots
        line = {"color": COLOURS[mode], "shape": "vh", "width": 2}
        shares = [100 * slot.share for slot in slots]
        common = {"x": _times(slots), "legendgroup": mode}
        figure.add_trace(go.Scatter(y=shares, name=TITLES[mode], line=line, **common), row=1, col=1)
        sent = _megabits_per_s(slots, [slot.sent_bytes for slot in slots])
        figure.add_trace(go.Scatter(y=sent, name="sent", line=line, showlegend=False, **common), row=2, col=1)
        raw = _megabits_per_s(slots, [slot.raw_bytes for slot in slots])
        thin = {**line, "dash": "dot", "width": 1}
        figure.add_trace(go.Scatter(y=raw, name=f"{TITLES[mode]}: before trimming", line=thin, **common), row=2, col=1)
    figure.add_hline(
        y=settings.link_mbit_per_s,
        line={"color": THRESHOLD, "dash": "dash", "width": 1.5},
        annotation={"text": f"one link's rate, {settings.link_mbit_per_s:g} Mbit/s", "font": {"color": THRESHOLD}},
        annotation_position="top right",
        row=2,
        col=1,
    )
    figure.update_yaxes(title="events sent to the cloud (%)", range=[0, 100], row=1, col=1)
    figure.update_yaxes(title="across the WAN (Mbit/s)", rangemode="tozero", row=2, col=1)
    return finished(figure, height=560)


def _add_vm_life(figure: go.Figure, record: GatewayRecord, row: int) -> None:
    end_s = max(chain((slot.at_s for slot in record.slots), (mark.at_s for mark in record.marks)), default=0.0)
    for _, phase, from_s, to_s in vm_lives(record.marks, end_s):
        figure.add_vrect(x0=from_s, x1=to_s, fillcolor=VM_FILL[phase], line_width=0, layer="below", row=row, col=1)
    for mark in record.marks:
        if mark.kind == "vm_gone":
            continue
        label = mark.kind.removeprefix("vm_")
        figure.add_vline(x=mark.at_s, line={"color": "#6b7280", "width": 1, "dash": "dot"}, row=row, col=1)
        figure.add_annotation(
            x=mark.at_s,
            y=1,
            yref="y domain" if row == 1 else f"y{row} domain",
            yanchor="top",
            textangle=-90,
            text=label,
            showarrow=False,
            xanchor="left",
            font={"size": 10, "color": "#6b7280"},
            row=row,
            col=1,
        )


def _add_thresholds(figure: go.Figure, settings: Settings, row: int | None = None) -> None:
    """Draw L_s, L_d and L_p; a figure without rows has room to explain them."""
    for name, at_s, meaning in (
        ("L_s", settings.start_vm_above_s, "launch a VM above"),
        ("L_d", settings.send_above_s, "send to it above"),
        ("L_p", settings.keep_vm_above_s, "keep it above"),
    ):
        line = {"color": THRESHOLD, "dash": "dash", "width": 1}
        if row is not None:
            figure.add_hline(y=at_s, line=line, row=row, col=1)
            continue
        figure.add_hline(y=at_s, line=line)
        figure.add_annotation(
            x=1.005,
            xref="paper",
            xanchor="left",
            y=at_s,
            text=f"{name} {at_s:g} s: {meaning}",
            showarrow=False,
            font={"color": THRESHOLD, "size": 12},
        )


def _latency_line(slots: tuple[Slot, ...], mode: Mode, name: str) -> go.Scatter:
    values = [_seconds(slot.all_latency_ms) for slot in slots]
    return go.Scatter(x=_times(slots), y=values, name=name, line={"color": COLOURS[mode], "width": 2.2})


def _times(slots: tuple[Slot, ...]) -> list[float]:
    return [slot.at_s for slot in slots]


def _seconds(latency_ms: float | None) -> float | None:
    return None if latency_ms is None else latency_ms / 1000


def _megabits_per_s(slots: tuple[Slot, ...], sizes: list[int]) -> list[float]:
    """Return bit rates from the bytes of each slot; the first slot is assumed to begin at 0."""
    ends_s = _times(slots)
    lengths_s = [end_s - start_s for start_s, end_s in pairwise([0.0, *ends_s])]
    return [8e-6 * size / max(length_s, 1e-3) for size, length_s in zip(sizes, lengths_s, strict=True)]
