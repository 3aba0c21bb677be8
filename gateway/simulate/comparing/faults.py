"""What faults did, and what they cost: each variant beside the same one without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.simulate.comparing.figures import Figure, Row, Table, number
from gateway.simulate.faultcounts import FaultCounts
from gateway.simulate.fluid.outcomes import FluidOutcome
from gateway.simulate.runs.outcomes import WorldOutcome

LEGEND = (
    "not ready: billed VMs that never were; sent again: events of hosts that were lost; the last two columns: what all "
    "faults together add to the mean latency and the cost."
)


@dataclass(frozen=True, slots=True)
class Harm:
    """A variant with faults.

    Attributes:
        counts: what went wrong.
        again_events: events that were sent again.
        latency_s: what the faults add to the mean latency of all events.
        usd: what they add to the cost.
    """

    counts: FaultCounts
    again_events: float
    latency_s: float
    usd: float


def _more_s(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f} s"  # no negative zero


def _more_usd(value: float) -> str:
    return f"{round(value, 4) + 0.0:+.4f}"


def harm(outcome: WorldOutcome | FluidOutcome, calm: WorldOutcome | FluidOutcome) -> Harm:
    """Return what faults did to a variant whose outcome without them is ``calm``."""
    again_events = sum(query.again_events for query in outcome.queries)
    return Harm(outcome.faults, again_events, _mean_s(outcome) - _mean_s(calm), outcome.usd - calm.usd)


def _mean_s(outcome: WorldOutcome | FluidOutcome) -> float:
    if isinstance(outcome, FluidOutcome):
        return outcome.mean_s
    events = sum(query.events for query in outcome.queries)
    return sum(query.mean_s * query.events for query in outcome.queries) / events if events else 0.0


def faults_table(harms: Mapping[str, Harm]) -> Table:
    """Return what went wrong in each variant, by its name."""
    figures = (
        number("launches failed", 15), number("not ready", 9), number("VMs died", 8), number("home died", 9),
        number("notices", 7), number("reclaimed", 9), number("sent again", 10), Figure("mean +", 9, _more_s),
        Figure("USD +", 9, _more_usd),
    )  # fmt: skip
    rows = tuple(
        Row(
            (name,),
            (
                one.counts.launches_failed,
                one.counts.launches_hung,
                one.counts.vms_died,
                one.counts.home_died,
                one.counts.notices,
                one.counts.reclaimed,
                one.again_events,
                one.latency_s,
                one.usd,
            ),
        )
        for name, one in harms.items()
    )
    return Table((("faults", 14),), figures, rows)
