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
    "<h1>Spillway simulation</h1><p class=lead>The same events played to each policy in virtual time: decisions by "
    "the gateway's own scheduler, hosts and the cloud simulated. Model: fluid (load in arrays, slot by slot; below "
    "saturation nothing waits by chance).</p>"
)
_COMMANDS_SHOWN = 200


def write_page(contest: Contest, queries: tuple[QuerySettings, ...], path: Path) -> None:
    """Write the page to ``path``."""
    body = [
        _HEADING,
        _summary(contest),
        figure_section(
            "Latency against cost",
            "Each policy by what it cost and how late events were on average. Those on the line are beaten by none: "
            "whatever is cheaper is slower. The upright line is what the VMs cost at least if all events were known "
            "ahead and none waited from one window to the next. Where latencies lie far apart, their axis is "
            "logarithmic.",
            frontier(contest),
        ),
        figure_section(
            "Latency over time",
            "Mean latency of what was completed, by query. Red dashes: start a VM above L_s, send to it above L_d, "
            "keep it above L_p. A point is the mean over a 240th of the time. Where latencies lie far apart, the "
            "axis is logarithmic.",
            latencies(contest, queries),
        ),
        figure_section(
            "VMs, money, misses",
            "How many VMs there were, what had been spent, and which part of the events took longer than promised, "
            "averaged over a hundredth of the time.",
            over_time(contest),
        ),
        figure_section(
            "The life of the VMs",
            "For each policy, a strip for each VM there is at a time: yellow while it starts, green while it can be "
            "used, grey while it is terminated.",
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
        rows.append(("optimum (VMs alone)", "", "", "", "", "", f"{contest.optimum.renting_usd:.4f} USD", ""))
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    late = "<p>An event is late when it took longer than its query's <code>qos.latency</code>.</p>"
    note = (
        late if contest.optimum is not None else f"{late}<p>The optimum cannot be told: {escape(contest.why_not)}</p>"
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
