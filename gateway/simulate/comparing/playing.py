"""Plays the variants of a world, and puts the results of several seeds together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from gateway.simulate.comparing import contest
from gateway.simulate.comparing.contest import Contest
from gateway.simulate.comparing.figures import Table, told, written
from gateway.simulate.comparing.tables import fluid_notes, fluid_table, runs_notes, runs_table
from gateway.simulate.options import WorldOptions
from gateway.simulate.runs.world import World


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one seed.

    Attributes:
        table: the figures.
        report: all results, for JSON.
        contest: of the fluid model; None: the model of runs was played.
    """

    table: Table
    report: dict[str, object]
    contest: Contest | None = None


def alone_and_configured(world: WorldOptions) -> dict[str, WorldOptions]:
    """Return a world with the private cluster alone, and as configured."""
    alone = replace(world, scheduler=replace(world.scheduler, max_vms=0))
    return {"private only": alone, "as configured": world}


def play_runs(worlds: Mapping[str, WorldOptions]) -> Played:
    """Simulate worlds run by run.

    Raises:
        BrokenPromiseError: an invariant is broken.
    """
    outcomes = {name: World(one).run() for name, one in worlds.items()}
    return Played(runs_table(outcomes), {name: asdict(outcome) for name, outcome in outcomes.items()})


def play_fluid(held: Contest) -> Played:
    """Return the results of a contest."""
    return Played(fluid_table(held), contest.report(held), held)


def result_lines(played: Sequence[Played]) -> Iterator[str]:
    """Yield the lines of the result of some seeds."""
    tables = [one.table for one in played]
    yield from written(tables)
    contests = [one.contest for one in played if one.contest is not None]
    yield from fluid_notes(contests, tables) if contests else runs_notes(tables)


def result_report(played: Mapping[int, Played]) -> dict[str, object]:
    """Return the result of some seeds for JSON: of one seed its results, else also the ranges over all of them."""
    if len(played) == 1:
        return next(iter(played.values())).report
    return {
        "seeds": list(played),
        "ranges": told([one.table for one in played.values()]),
        "by_seed": {str(seed): one.report for seed, one in played.items()},
    }
