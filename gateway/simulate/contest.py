"""Several policies on the same events, in fluid worlds, compared with the optimum that knows the whole trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from pydantic import TypeAdapter, ValidationError

from engines.simulated.generators import Poisson
from gateway.config import Config
from gateway.config.policy import PolicyConfig, ReactivePolicyConfig, policy_findings
from gateway.config.settings import scheduler_settings
from gateway.simulate.fluid.options import FluidOptions, FluidQuery, FluidSite, FromGenerators
from gateway.simulate.fluid.world import FluidOutcome, FluidWorld
from gateway.simulate.options import WorldOptions
from policies.planning.clairvoyant import Blocks, Optimum, clairvoyant

HOME_ALONE = "home"
AS_CONFIGURED = "configured"
KNOWN = (HOME_ALONE, AS_CONFIGURED, "reactive", "lookahead", "auto", "planner", "queueing", "cpu", "static", "static:N")
_COMMANDS_TOLD = 2000
_WINDOWS_PER_PERIOD = 4
_MISS_USD = 1.0
"""The cost of a late event for the optimum: so high that an event is late only if that cannot be avoided."""


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
    first_block_s = scheduler_settings(config).billing.first_block_s
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
    """

    outcomes: Mapping[str, FluidOutcome]
    optimum: Optimum | None
    why_not: str
    window_s: float


def hold(
    config: Config,
    world: WorldOptions,
    policies: Sequence[str],
    progress: Callable[[str], Callable[[int, int], None]] | None = None,
) -> Contest:
    """Simulate each policy with the same events.

    Args:
        config: as for the daemon.
        world: its plan.
        policies: names, as for ``with_policy``.
        progress: called with a policy's name; returns a function that is called with (slot, slots).

    Raises:
        PolicyError: see ``with_policy``.
    """
    outcomes = {
        name: FluidWorld(fluid_world(one), None if progress is None else progress(name)).run()
        for name, one in variants(config, world, policies).items()
    }
    window_s = _window_s(world)
    try:
        return Contest(outcomes, _optimum(world, window_s), "", window_s)
    except ValueError as error:
        return Contest(outcomes, None, str(error), window_s)


def variants(config: Config, world: WorldOptions, policies: Sequence[str]) -> dict[str, WorldOptions]:
    """Return the world in which each of the policies decides, by name.

    Raises:
        PolicyError: see ``with_policy``.
    """
    return {name: _scheduled(world, with_policy(config, name), name) for name in dict.fromkeys(policies)}


def _scheduled(world: WorldOptions, config: Config, name: str) -> WorldOptions:
    """Return the world in which the config's scheduler decides; queries that may not be split stay so."""
    may = {query.settings.name: query.settings.switchable for query in world.queries}
    scheduler = scheduler_settings(config)
    queries = tuple(replace(query, switchable=may[query.name]) for query in scheduler.queries)
    max_vms = 0 if name == HOME_ALONE else scheduler.max_vms
    return replace(world, scheduler=replace(scheduler, queries=queries, max_vms=max_vms))


def _window_s(world: WorldOptions) -> float:
    slot_s, period_s = world.scheduler.slot_s, world.scheduler.billing.period_s
    return slot_s * max(1, round(period_s / _WINDOWS_PER_PERIOD / slot_s))


def _optimum(world: WorldOptions, window_s: float) -> Optimum:
    """Return the cheapest VMs for the work of each window; a query that may not be split counts like any other."""
    terms, machines = world.scheduler.billing, world.machines
    load = fluid_world(world).load
    slots = max(1, round(window_s / world.scheduler.slot_s))
    windows = max(1, int(world.load_s / (slots * world.scheduler.slot_s)))
    events = np.array([load.block(at * slots, slots).sum(axis=0) for at in range(windows)])
    window_s = slots * world.scheduler.slot_s
    runs = [
        np.clip(events[:, q] / window_s * query.run_s, 1.0, query.run_events) for q, query in enumerate(world.queries)
    ]
    costs_s = [
        (
            machines.batch_s if query.batch_s is None else query.batch_s,
            1 / machines.events_per_s if query.event_s is None else query.event_s,
        )
        for query in world.queries
    ]
    work_s = sum(
        events[:, q] * (event_s + batch_s / run)
        for q, (run, (batch_s, event_s)) in enumerate(zip(runs, costs_s, strict=True))
    )
    host_s = machines.cores * window_s
    hosts = [1 + v * machines.vm_speed for v in range(world.scheduler.max_vms + 1)]
    late = np.array([np.maximum(0.0, work_s - count * host_s) for count in hosts]).T
    blocks = Blocks(
        first=round(terms.first_block_s / window_s),
        period=round(terms.period_s / window_s),
        boot=int(np.ceil(world.scheduler.boot_s / window_s - 1e-9)),
        window_usd=terms.time_usd(window_s),
    )
    return clairvoyant(late / max(event_s for _, event_s in costs_s) * _MISS_USD, blocks)


def table(contest: Contest) -> list[str]:
    """Return the lines of a table."""
    head = f"{'policy':<12} {'mean':>9} {'p95':>9} {'late':>7} {'shed':>6}"
    lines = [head + f" {'in cloud':>9} {'VMs':>4} {'USD':>9} {'commands':>9}"]
    for name, outcome in contest.outcomes.items():
        lines.append(
            f"{name:<12} {outcome.mean_s:>7.2f} s {outcome.p95_s:>7.2f} s {outcome.missed:>7.1%} {_shed(outcome):>6.1%}"
            f" {outcome.cloud_share:>9.1%} {outcome.vms:>4} {outcome.usd:>9.4f} {len(outcome.commands):>9}"
        )
    optimum = contest.optimum
    if optimum is None:
        lines.append(f"The optimum cannot be computed: {contest.why_not}")
    else:
        lines.append(
            f"{'optimum':<12} {'':>9} {'':>9} {'':>7} {'':>6} {'':>9} {max(optimum.vms):>4} {optimum.renting_usd:>9.4f}"
            "           (only VMs; all events known in advance)"
        )
    return lines


def _shed(outcome: FluidOutcome) -> float:
    """Return the part of all events that was shed because the budget was spent."""
    shed = sum(query.shed_events for query in outcome.queries)
    came = shed + sum(query.events for query in outcome.queries)
    return shed / came if came else 0.0


def report(contest: Contest) -> dict[str, object]:
    """Return all results, for JSON."""
    told: dict[str, object] = {}
    for name, outcome in contest.outcomes.items():
        whole = asdict(replace(outcome, commands=outcome.commands[:_COMMANDS_TOLD]))
        for said, one in zip(whole["commands"], outcome.commands, strict=False):
            said["kind"] = type(one.command).__name__
        told[name] = whole
    optimum = contest.optimum
    told["optimum"] = None if optimum is None else {**asdict(optimum), "window_s": contest.window_s}
    return told
