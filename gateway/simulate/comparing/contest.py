"""Several policies on the same events, in fluid worlds, compared with the optimum that knows the whole trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from pydantic import TypeAdapter, ValidationError

from engines.simulated.generators import Poisson
from gateway.config import Config
from gateway.config.policy import PolicyConfig, ReactivePolicyConfig, policy_findings
from gateway.config.settings import lone_settings
from gateway.simulate.comparing.optimum import NoOptimumError, optimum, window_slots
from gateway.simulate.eventlogs import NO_LOGS, EventLogs
from gateway.simulate.fluid.options import FluidOptions, FluidQuery, FluidSite, FromGenerators
from gateway.simulate.fluid.outcomes import FluidOutcome
from gateway.simulate.fluid.world import FluidWorld
from gateway.simulate.options import Faults, WorldOptions
from policies.arrays import Array
from policies.planning.clairvoyant import Optimum

HOME_ALONE = "home"
AS_CONFIGURED = "configured"
WITHOUT_FAULTS = "without faults"
KNOWN = (HOME_ALONE, AS_CONFIGURED, "reactive", "lookahead", "auto", "planner", "queueing", "cpu", "static", "static:N")
_COMMANDS_TOLD = 2000


class PolicyError(ValueError):
    """A policy does not exist or does not fit this config."""


def with_policy(config: Config, name: str) -> Config:
    """Return a config in which all queries have the policy ``name``.

    Args:
        config: as for the daemon.
        name: ``home``, ``configured``, a policy's name, or ``static:N``.

    Raises:
        PolicyError: the policy does not exist, or does not fit the config.
    """
    if name in (HOME_ALONE, AS_CONFIGURED):
        return config
    kind, _, count = name.partition(":")
    said: dict[str, object] = {"type": kind}
    if kind == "static":
        said["vms"] = count or config.cloud.max_vms
    elif count:
        raise PolicyError(f'policy "{name}": only static takes a number, as in static:2')
    try:
        policy: PolicyConfig = TypeAdapter(PolicyConfig).validate_python(said)
    except ValidationError:
        raise PolicyError(f'there is no policy "{name}"; choose among {", ".join(KNOWN)}') from None
    first_block_s = lone_settings(config).billing.first_block_s
    mode_off = ReactivePolicyConfig(type="reactive")
    queries = {}
    for query_name, query in config.queries.items():
        chosen = mode_off if query.switching.mode == "off" else policy
        findings = policy_findings(
            chosen,
            mode=query.switching.mode,
            slot_s=config.gateway.slot_s,
            boot_s=config.cloud.boot_s,
            first_block_s=first_block_s,
            max_vms=config.cloud.max_vms,
        )
        if findings:
            raise PolicyError(f"policy {name} does not fit query {query_name}: {findings[0].what}")
        queries[query_name] = query.model_copy(update={"policy": chosen})
    return config.model_copy(update={"queries": queries})


def fluid_world(world: WorldOptions) -> FluidOptions:
    """Return the fluid world of a gateway and its events; each call has a new load with the same events."""
    slot_s = world.scheduler.slot_s
    generators = [
        Poisson(query.load, np.random.default_rng([world.seed, int.from_bytes(query.settings.name.encode())]))
        if query.poisson
        else query.load
        for query in world.queries
    ]
    shapes = tuple(
        FluidQuery(
            name=query.settings.name,
            statistic=query.statistic,
            run_s=query.run_s,
            run_events=query.run_events,
            event_bytes=query.event_bytes,
            sent_part=query.sent_part,
            disordered=query.disordered,
            batch_s=query.batch_s,
            further_run_s=query.further_run_s,
            batch_runs=query.batch_runs,
            event_s=query.event_s,
        )
        for query in world.queries
    )
    slots = max(1, round(world.load_s / slot_s))
    return FluidOptions(
        seed=world.seed,
        sites=(FluidSite(scheduler=world.scheduler, queries=shapes, machines=world.machines),),
        load=FromGenerators(generators, slot_s),
        slots=slots,
        rest_slots=max(86_400, 10 * slots),
        faults=world.faults,
        begins_wall_s=world.begins_wall_s,
    )


@dataclass(frozen=True, slots=True)
class Contest:
    """The results.

    Attributes:
        outcomes: of each policy, by its name.
        optimum: the cheapest VMs with which no event waits from one window to the next; None if it cannot be computed.
        why_not: why it cannot.
        window_s: the windows of the optimum.
        calm: the same policies without faults; empty if there are no faults.
    """

    outcomes: Mapping[str, FluidOutcome]
    optimum: Optimum | None
    why_not: str
    window_s: float
    calm: Mapping[str, FluidOutcome] = field(default_factory=dict)


def hold(
    config: Config,
    world: WorldOptions,
    policies: Sequence[str],
    progress: Callable[[str], Callable[[int, int], None]] | None = None,
    logs: EventLogs = NO_LOGS,
) -> Contest:
    """Simulate each policy with the same events.

    Args:
        config: as for the daemon.
        world: its plan.
        policies: names, as for ``with_policy``.
        progress: called with a policy's name; returns a function that is called with (slot, slots).
        logs: of the schedulers; those without faults have none.

    Raises:
        PolicyError: see ``with_policy``.
        OSError: a log cannot be written.
    """
    worlds = variants(config, world, policies)

    def play(name: str, one: WorldOptions, logs: EventLogs) -> FluidOutcome:
        with logs.scheduler_of(name) as make_scheduler:
            options = replace(fluid_world(one), make_scheduler=make_scheduler)
            return FluidWorld(options, None if progress is None else progress(name)).run()

    outcomes = {name: play(name, one, logs) for name, one in worlds.items()}
    calm = {
        name: play(f"{name} {WITHOUT_FAULTS}", replace(one, faults=Faults()), NO_LOGS)
        for name, one in worlds.items()
        if one.faults != Faults()
    }
    window_s = window_slots(world) * world.scheduler.slot_s
    try:
        return Contest(outcomes, optimum(world, _events(world)), "", window_s, calm)
    except NoOptimumError as error:
        return Contest(outcomes, None, str(error), window_s, calm)


def variants(config: Config, world: WorldOptions, policies: Sequence[str]) -> dict[str, WorldOptions]:
    """Return the world in which each of the policies decides, by name.

    Raises:
        PolicyError: see ``with_policy``.
    """
    return {name: _scheduled(world, with_policy(config, name), name) for name in dict.fromkeys(policies)}


def _scheduled(world: WorldOptions, config: Config, name: str) -> WorldOptions:
    """Return the world in which the config's scheduler decides; queries that may not be split stay so."""
    may = {query.settings.name: query.settings.switchable for query in world.queries}
    scheduler = lone_settings(config)
    queries = tuple(replace(query, switchable=may[query.name]) for query in scheduler.queries)
    max_vms = 0 if name == HOME_ALONE else scheduler.max_vms
    return replace(world, scheduler=replace(scheduler, queries=queries, max_vms=max_vms))


def _events(world: WorldOptions) -> Array:
    """Return the events of each window of the optimum, shape (windows, queries)."""
    load, slots = fluid_world(world).load, window_slots(world)
    windows = max(1, int(world.load_s / (slots * world.scheduler.slot_s)))
    return np.array([load.block(at * slots, slots).sum(axis=0) for at in range(windows)])


def report(contest: Contest) -> dict[str, object]:
    """Return all results, for JSON."""
    told: dict[str, object] = {name: _told(outcome) for name, outcome in contest.outcomes.items()}
    if contest.calm:
        told[WITHOUT_FAULTS] = {name: _told(outcome) for name, outcome in contest.calm.items()}
    best = contest.optimum
    told["optimum"] = None if best is None else {**asdict(best), "window_s": contest.window_s}
    if best is None:
        told["optimum_missing_because"] = contest.why_not
    return told


def _told(outcome: FluidOutcome) -> dict[str, object]:
    whole = asdict(replace(outcome, commands=outcome.commands[:_COMMANDS_TOLD]))
    for said, one in zip(whole["commands"], outcome.commands, strict=False):
        said["kind"] = type(one.command).__name__
    return whole
