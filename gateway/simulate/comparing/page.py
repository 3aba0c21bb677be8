"""A contest of policies as one HTML file with its figures and Plotly's script inside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from gateway.simulate.comparing.charts import frontier, latencies, lives, over_time
from gateway.simulate.comparing.contest import Contest
from gateway.simulate.comparing.faults import LEGEND, faults_table, harm
from gateway.simulate.comparing.figures import as_html
from gateway.simulate.comparing.tables import fluid_notes, fluid_table, sizes_table
from gateway.simulate.fluid.outcomes import FluidOutcome
from gateway.views.page import figure_section, whole_page
from policies.switching.query import QuerySettings

_HEADING = (
    "<h1>Spillway simulation</h1><p class=lead>Each policy gets the same events in virtual time. The "
    "gateway's own scheduler decides; hosts and the cloud are simulated. Model: fluid (load in arrays, slot by slot; "
    "below saturation there are no random waits).</p>"
)
_COMMANDS_SHOWN = 200


def write_page(contests: Sequence[Contest], queries: tuple[QuerySettings, ...], path: Path) -> None:
    """Write the page to ``path``.

    Args:
        contests: of each seed.
        queries: as in the scheduler's settings.
        path: of the page.
    """
    contest = contests[0]
    body = [
        _HEADING,
        _summary(contests),
        *_sizes(contests),
        *_faults(contests),
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


def _summary(contests: Sequence[Contest]) -> str:
    tables = [fluid_table(contest) for contest in contests]
    said = ["An event is late when it took longer than its query's <code>qos.latency</code>."]
    if len(contests) > 1:
        said.append(f"The figures are medians over {len(contests)} seeds, with their lowest and highest value.")
        said.append("The charts below show the first seed.")
    said += [escape(line) for line in fluid_notes(contests, tables)]
    return f"<section><h2>Summary</h2><p>{' '.join(said)}</p>{as_html(tables)}</section>"


def _sizes(contests: Sequence[Contest]) -> list[str]:
    """Return the section about sizes, if VMs have any."""
    tables = [table for contest in contests if (table := sizes_table(contest.outcomes)) is not None]
    return [f"<section><h2>VMs by size</h2>{as_html(tables)}</section>"] if tables else []


def _faults(contests: Sequence[Contest]) -> list[str]:
    """Return the section about faults, if there are any."""
    tables = [
        faults_table({name: harm(contest.outcomes[name], one) for name, one in contest.calm.items()})
        for contest in contests
        if contest.calm
    ]
    return [f"<section><h2>Faults</h2><p>{escape(LEGEND)}</p>{as_html(tables)}</section>"] if tables else []


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
