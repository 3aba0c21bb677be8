"""A contest of policies as one HTML file with its figures and Plotly's script inside."""

from __future__ import annotations

from html import escape
from pathlib import Path

from gateway.simulate.charts import frontier, latencies, lives, over_time
from gateway.simulate.contest import Contest
from gateway.simulate.fluid.world import FluidOutcome
from gateway.views.page import figure_section, whole_page
from policies.switching.query import QuerySettings

_HEADING = (
    "<h1>Spillway simulation</h1><p class=lead>Each policy gets the same events in virtual time. The "
    "gateway's own scheduler decides; hosts and the cloud are simulated. Model: fluid (load in arrays, slot by slot; "
    "below saturation there are no random waits).</p>"
)
_COMMANDS_SHOWN = 200


def write_page(contest: Contest, queries: tuple[QuerySettings, ...], path: Path) -> None:
    """Write the page to ``path``."""
    body = [
        _HEADING,
        _summary(contest),
        figure_section(
            "Latency over cost",
            "The cost and the mean latency of each policy. No other policy beats those on the line: every cheaper "
            "one is slower. The vertical line is the least cost of VMs if all events were known in advance and none "
            "waited from one window to the next. If latencies differ a lot, their axis is "
            "logarithmic.",
            frontier(contest),
        ),
        figure_section(
            "Latency over time",
            "Mean latency of completed events, by query. Dashed red lines: launch a VM above L_s, send to it above "
            "L_d, keep it above L_p. A point is the mean over a 240th of the time. If latencies differ a lot, the "
            "axis is logarithmic.",
            latencies(contest, queries),
        ),
        figure_section(
            "VMs, money, misses",
            "The number of VMs, the money spent, and the part of the events that took longer than promised, averaged "
            "over a hundredth of the time.",
            over_time(contest),
        ),
        figure_section(
            "The life of the VMs",
            "For each policy, one strip per VM: yellow while it starts, green while it can be used, grey while it is "
            "terminated.",
            lives(contest),
        ),
        *(_decisions(name, outcome) for name, outcome in contest.outcomes.items()),
    ]
    path.write_text(whole_page("Spillway simulation", body), encoding="utf-8")


def _summary(contest: Contest) -> str:
    head = "".join(
        f"<th>{cell}</th>"
        for cell in (
            "policy",
            "mean latency",
            "p95 latency",
            "late",
            "in the cloud",
            "VMs started",
            "spent",
            "commands",
        )
    )
    rows = [
        (
            name,
            f"{one.mean_s:.2f} s",
            f"{one.p95_s:.2f} s",
            f"{one.missed:.1%}",
            f"{one.cloud_share:.1%}",
            f"{one.vms}",
            f"{one.usd:.4f} USD",
            f"{len(one.commands)}",
        )
        for name, one in contest.outcomes.items()
    ]
    if contest.optimum is not None:
        rows.append(("optimum (only VMs)", "", "", "", "", "", f"{contest.optimum.renting_usd:.4f} USD", ""))
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    late = "<p>An event is late when it took longer than its query's <code>qos.latency</code>.</p>"
    note = (
        late
        if contest.optimum is not None
        else f"{late}<p>The optimum cannot be computed: {escape(contest.why_not)}</p>"
    )
    return (
        f"<section><h2>Summary</h2>{note}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></section>"
    )


def _decisions(name: str, outcome: FluidOutcome) -> str:
    shown = outcome.commands[:_COMMANDS_SHOWN]
    rows = "".join(
        f"<tr><td>{one.at_s:g} s</td><td>{escape(type(one.command).__name__)}</td>"
        f"<td>{escape(one.command.cause.why)}</td></tr>"
        for one in shown
    )
    said = f"the first {len(shown)} of {len(outcome.commands)}" if len(shown) < len(outcome.commands) else "all"
    return (
        f"<section><details><summary>Decisions of {escape(name)} ({said} commands)</summary>"
        f"<table><tbody>{rows}</tbody></table></details></section>"
    )
