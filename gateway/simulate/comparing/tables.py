"""The results of both models as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.simulate.comparing.contest import Contest
from gateway.simulate.comparing.figures import NONE, Row, Table, number, part, seconds, usd
from gateway.simulate.fluid.outcomes import FluidOutcome
from gateway.simulate.runs.outcomes import WorldOutcome

NO_EVENT = f"{NONE}: no event was answered, so there is no latency."
ONLY_VMS = "optimum: the least cost of VMs, if all events were known in advance."


def runs_table(outcomes: Mapping[str, WorldOutcome]) -> Table:
    """Return the figures of each query, by the name of the variant."""
    rows = [
        Row(
            (name, query.name),
            (
                query.events,
                _part(query.shed_events, query.events + query.shed_events),
                query.mean_s if query.events else None,
                query.p95_s if query.events else None,
                _part(query.cloud_events, query.events),
                outcome.vms,
                outcome.usd,
            ),
        )
        for name, outcome in outcomes.items()
        for query in outcome.queries
    ]
    figures = (
        number("answered", 10), part("shed"), seconds("mean"), seconds("p95"), part("in cloud", 9), number("VMs", 4),
        usd(),
    )  # fmt: skip
    return Table((("", 14), ("query", 20)), figures, tuple(rows))


def fluid_table(contest: Contest) -> Table:
    """Return the figures of each policy over all queries, and of the optimum if it could be computed."""
    figures = (
        seconds("mean"), seconds("p95"), part("late", 7), part("shed"), part("in cloud", 9), number("VMs", 4), usd(),
        number("commands", 9),
    )  # fmt: skip
    rows = [Row((name,), _fluid_values(one)) for name, one in contest.outcomes.items()]
    best = contest.optimum
    if best is not None:
        values = (None, None, None, None, None, max(best.vms, default=0), best.renting_usd, None)
        rows.append(Row(("optimum",), values, none=""))
    return Table((("policy", 12),), figures, tuple(rows))


def _fluid_values(one: FluidOutcome) -> tuple[float | None, ...]:
    shed = sum(query.shed_events for query in one.queries)
    events = sum(query.events for query in one.queries)
    answered = bool(one.mean_s)
    return (
        one.mean_s if answered else None,
        one.p95_s if answered else None,
        one.missed if answered else None,
        _part(shed, shed + events),
        one.cloud_share,
        one.vms,
        one.usd,
        len(one.commands),
    )


def sizes_table(outcomes: Mapping[str, WorldOutcome | FluidOutcome]) -> Table | None:
    """Return how many VMs of each size each variant launched, by its name; None if VMs have no size."""
    rows = tuple(
        Row((name, one.size), (one.vms, one.usd_per_hour))
        for name, outcome in outcomes.items()
        for one in outcome.sizes
    )
    return Table((("VMs by size", 14), ("size", 20)), (number("VMs", 4), usd("USD/hour")), rows) if rows else None


def runs_notes(tables: Sequence[Table]) -> list[str]:
    """Return what has to be said about the tables of some seeds."""
    missing = any(None in row.values for table in tables for row in table.rows)
    return [NO_EVENT] if missing else []


def fluid_notes(contests: Sequence[Contest], tables: Sequence[Table]) -> list[str]:
    """Return what has to be said about the contests of some seeds, and their tables."""
    rows = [row for table in tables for row in table.rows]
    said = [NO_EVENT] if any(None in row.values and row.none == NONE for row in rows) else []
    if any(contest.optimum is not None for contest in contests):
        said.append(ONLY_VMS)
    reasons = dict.fromkeys(contest.why_not for contest in contests if contest.optimum is None)
    said += [f"The optimum cannot be computed: {why}." for why in reasons]
    left = {name: max(contest.outcomes[name].unanswered for contest in contests) for name in contests[0].outcomes}
    return said + [
        f"{name}: {events:,.0f} events were not answered when the simulation stopped; its latency leaves them out."
        for name, events in left.items()
        if round(events)
    ]


def _part(some: float, whole: float) -> float:
    return some / whole if whole else 0.0
