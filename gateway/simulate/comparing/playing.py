"""Plays the variants of a world, and puts the results of several seeds together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from gateway.simulate.comparing import contest
from gateway.simulate.comparing.contest import WITHOUT_FAULTS, Contest
from gateway.simulate.comparing.faults import LEGEND, faults_table, harm
from gateway.simulate.comparing.figures import Table, told, written
from gateway.simulate.comparing.tables import fluid_notes, fluid_table, runs_notes, runs_table, sizes_table
from gateway.simulate.eventlogs import NO_LOGS, EventLogs
from gateway.simulate.options import Faults, WorldOptions
from gateway.simulate.runs.outcomes import WorldOutcome
from gateway.simulate.runs.world import World


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one seed.

    Attributes:
        table: the figures.
        faults: what went wrong; None if nothing was to.
        report: all results, for JSON.
        contest: of the fluid model; None: the model of runs was played.
        sizes: VMs by size; None if they have none.
    """

    table: Table
    faults: Table | None
    report: dict[str, object]
    contest: Contest | None = None
    sizes: Table | None = None


def alone_and_configured(world: WorldOptions) -> dict[str, WorldOptions]:
    """Return a world with the private cluster alone, and as configured."""
    alone = replace(world, scheduler=replace(world.scheduler, max_vms=0))
    return {"private only": alone, "as configured": world}


def play_runs(worlds: Mapping[str, WorldOptions], logs: EventLogs = NO_LOGS) -> Played:
    """Simulate worlds run by run.

    Args:
        worlds: by name.
        logs: of the schedulers; those without faults have none.

    Raises:
        BrokenPromiseError: an invariant is broken.
        OSError: a log cannot be written.
    """
    outcomes = {name: _logged(name, one, logs) for name, one in worlds.items()}
    calm = {name: World(replace(one, faults=Faults())).run() for name, one in worlds.items() if one.faults != Faults()}
    report: dict[str, object] = {name: asdict(outcome) for name, outcome in outcomes.items()}
    if calm:
        report[WITHOUT_FAULTS] = {name: asdict(outcome) for name, outcome in calm.items()}
    harms = {name: harm(outcomes[name], one) for name, one in calm.items()}
    faults = faults_table(harms) if harms else None
    return Played(runs_table(outcomes), faults, report, sizes=sizes_table(outcomes))


def _logged(name: str, world: WorldOptions, logs: EventLogs) -> WorldOutcome:
    with logs.scheduler_of(name) as make_scheduler:
        return World(world, make_scheduler=make_scheduler).run()


def play_fluid(held: Contest) -> Played:
    """Return the results of a contest."""
    harms = {name: harm(held.outcomes[name], one) for name, one in held.calm.items()}
    faults = faults_table(harms) if harms else None
    return Played(fluid_table(held), faults, contest.report(held), held, sizes_table(held.outcomes))


def result_lines(played: Sequence[Played]) -> Iterator[str]:
    """Yield the lines of the result of some seeds."""
    tables = [one.table for one in played]
    yield from written(tables)
    contests = [one.contest for one in played if one.contest is not None]
    faults = [one.faults for one in played if one.faults is not None]
    sizes = [one.sizes for one in played if one.sizes is not None]
    yield from written(sizes) if sizes else ()
    yield from written(faults) if faults else ()
    yield from fluid_notes(contests, tables) if contests else runs_notes(tables)
    yield from (LEGEND,) if faults else ()


def result_report(played: Mapping[int, Played]) -> dict[str, object]:
    """Return the result of some seeds for JSON: of one seed its results, else also the ranges over all of them."""
    if len(played) == 1:
        return next(iter(played.values())).report
    faults = [one.faults for one in played.values() if one.faults is not None]
    sizes = [one.sizes for one in played.values() if one.sizes is not None]
    return {
        "seeds": list(played),
        "ranges": told([one.table for one in played.values()]),
        "ranges_of_faults": told(faults) if faults else None,
        "ranges_of_sizes": told(sizes) if sizes else None,
        "by_seed": {str(seed): one.report for seed, one in played.items()},
    }
