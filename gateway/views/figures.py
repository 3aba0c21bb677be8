"""Code that all charts share: their layout, the colour of thresholds, and the phases of a VM's life."""

from __future__ import annotations

import plotly.graph_objects as go

from gateway.views.runrecord import TimelineMark

THRESHOLD = "#b3261e"
TIME_AXIS = "time since the first event was due (s)"


def vm_lives(marks: tuple[TimelineMark, ...], end_s: float) -> list[tuple[str, str, float, float]]:
    """Return (vm, phase, from, to) for each phase of each VM; a phase without an end mark lasts until ``end_s``.

    The phases are ``starting`` (start to ready), ``up`` (ready to stop) and ``stopping`` (stop to gone).
    """
    phase_after = {"vm_start": "starting", "vm_ready": "up", "vm_stop": "stopping", "vm_gone": ""}
    lives = []
    for vm in dict.fromkeys(mark.vm for mark in marks):
        own = sorted((mark for mark in marks if mark.vm == vm), key=lambda mark: mark.at_s)
        ends = [*(mark.at_s for mark in own[1:]), end_s]
        for mark, until_s in zip(own, ends, strict=True):
            if phase := phase_after[mark.kind]:
                lives.append((vm, phase, mark.at_s, max(mark.at_s, until_s)))
    return lives


def finished(figure: go.Figure, height: int, *, legend: bool = True, right: int = 24) -> go.Figure:
    """Apply the layout to a chart over time; ``right`` is the margin for labels, in pixels."""
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 70, "r": right, "t": 56 if legend else 32, "b": 56},
        hovermode="x unified",
        showlegend=legend,
        legend={"orientation": "h", "yref": "container", "y": 0.995, "yanchor": "top", "x": 0, "xanchor": "left"},
        font={"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": "#1f2937"},
    )
    figure.update_xaxes(title=None, rangemode="tozero", showline=True, linecolor="#d1d5db")
    figure.update_xaxes(title=TIME_AXIS, selector=lambda axis: axis.showticklabels is not False)
    return figure
