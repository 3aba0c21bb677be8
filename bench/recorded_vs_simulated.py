"""Checks whether the simulator decides like the runs of a demo, slot by slot, and whether it predicts a demo.

    make demo
    STAGE=build/demo/stage
    taskset -c 0 .venv/bin/spillway profile $STAGE/private_only/config.yaml --query private_only --out measured.yaml
    .venv/bin/python bench/recorded_vs_simulated.py $STAGE measured.yaml elastic --vm-as-in elastic_compressed
    .venv/bin/python bench/recorded_vs_simulated.py $STAGE measured.yaml elastic_compressed --vm-as-in elastic
    .venv/bin/python bench/recorded_vs_simulated.py $STAGE measured.yaml elastic --as-recorded

With ``make demo RUNS=2``, and the profile of ``elastic-1``, a run is predicted:

    .venv/bin/python bench/recorded_vs_simulated.py $STAGE measured.yaml elastic-2 --predicted --vm-as-in elastic-1

The arrivals of each slot of a run are simulated with its config in a fluid world that calls the scheduler in every
slot. Two decisions are compared: whether a VM is wanted (equation 1), and whether events go to it (equation 2). The
goal is that both agree in 95 % of the slots.

With ``--vm-as-in`` nothing else comes from the run itself: the cost of micro-batches is profiled on Spark alone, and
the properties of a VM come from another run. With ``--as-recorded`` machines are as in the run: when the VM was ready,
and the rates of the VM and of home. Then only the decisions are compared, not the speed of machines.

With ``--predicted`` the arrivals too are those that the config announces, so nothing comes from the run: the profile,
an earlier run (``--vm-as-in``), and the config were there before it was played. The earlier run also tells how much
slower home is while a VM works, as both share one machine here. Mean latency and cost are compared as
well. The goals are then 90 % of the slots, 15 % of the latency and 10 % of the cost.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engines.simulated.generators import RecordedRates
from gateway.config import load
from gateway.core.decide.scheduler import Scheduler
from gateway.simulate.comparing.contest import fluid_world
from gateway.simulate.configload import configured_s
from gateway.simulate.fluid.world import FluidWorld
from gateway.simulate.options import QueryOptions, WorldOptions
from gateway.simulate.parameters.calibration import Calibration, MeasuredBoot, read_calibration
from gateway.simulate.plan import Recorded, plan, read_trace
from gateway.views.runrecord import GatewayRecord, Slot, read_record
from policies.arrays import Array, IntArray
from policies.signals import HOME, Ask, Command, Event, SlotAnswered, SlotEnded

GOAL = 0.95
PREDICTED_GOAL, LATENCY_GOAL, COST_GOAL = 0.90, 0.15, 0.10
AROUND_SLOTS = 5
BEHIND_MS = 500.0


@dataclass(frozen=True, slots=True)
class Course:
    """The decisions of each slot; all of shape (slots,)."""

    input_rate: Array
    wanted: Array
    sends: Array


@dataclass(frozen=True, slots=True)
class Played:
    """What a simulated run did: its course, the mean latency of all events, and the cost of VMs."""

    course: Course
    mean_s: float
    usd: float


def recorded(record: GatewayRecord, lines: list[dict[str, Any]]) -> Course:
    """Return the course of a run: its ledger has a line for each slot in which a decision changed.

    Args:
        record: of the run.
        lines: of its ledger, of one query.
    """
    rates = np.array([slot.input_rate for slot in record.slots])
    slot_s = float(np.median(np.diff([slot.at_s for slot in record.slots])))
    at = np.round((np.array([line["wall_s"] for line in lines]) - lines[0]["wall_s"]) / slot_s).astype(int)
    seen = np.array([line["seen"]["input_rate"] for line in lines])
    # The report has each slot but not its time; ledger and report have the same input rates.
    fits = [_fit(rates, at + first, seen) for first in range(len(rates))]
    at += int(np.argmax(fits))
    course = {}
    for name in ("phi_vm", "phi_data"):
        values = np.zeros(len(rates))
        for slot, line in zip(at, lines, strict=True):
            values[max(slot, 0) :] = float(line[name])
        course[name] = values
    return Course(rates, course["phi_vm"], course["phi_data"])


def _fit(rates: Array, at: IntArray, seen: Array) -> float:
    inside = (at >= 0) & (at < len(rates))
    return float(np.isclose(rates[at[inside]], seen[inside], rtol=1e-3).sum())


def ledger(folder: Path, query: str) -> list[dict[str, Any]]:
    """Return the lines of a query, in order of time."""
    lines = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return sorted((line for line in lines if line["query"] == query), key=lambda line: line["wall_s"])


def served_in(record: GatewayRecord) -> Callable[[int, bool], tuple[float, float]]:
    """Return the rates of home and of the VM around each slot of a run, where they had enough work.

    A micro-batch may take most of a slot, so five slots are averaged. If a lane did not have events at both ends of a
    slot, its possible rate is unknown: the nearest slots with a known rate replace it.
    """
    slots = record.slots
    names = {lane for slot in slots for lane in slot.completed}
    slot_s = np.diff([0.0, *(slot.at_s for slot in slots)])

    def rates(lanes: set[str]) -> Array:
        held = np.array([sum(slot.open.get(lane, 0) for lane in lanes) > 0 for slot in slots])
        busy = (
            held
            & np.concatenate([[False], held[:-1]])
            & (np.array([slot.latency_ms or 0 for slot in slots]) > BEHIND_MS)
        )
        if not busy.any():
            return np.full(len(slots), np.nan)
        done = np.array([sum(slot.completed.get(lane, 0) for lane in lanes) for slot in slots])
        around = np.ones(AROUND_SLOTS)
        per_s = np.convolve(done * busy, around, "same") / np.maximum(np.convolve(slot_s * busy, around, "same"), 1e-9)
        known = np.flatnonzero(busy & (per_s > 0))
        nearest = known[np.abs(known[:, None] - np.arange(len(slots))).argmin(axis=0)]
        return np.asarray(per_s[nearest])

    home, cloud = rates({HOME}), rates(names - {HOME})
    cloud = np.where(np.isnan(cloud), home, cloud)

    def served(slot: int, vm_worked: bool) -> tuple[float, float]:  # noqa: ARG001
        at = min(slot, len(slots) - 1)
        return float(home[at]), float(cloud[at])

    return served


def vm_as_in(record: GatewayRecord, lines: list[dict[str, Any]]) -> tuple[float, MeasuredBoot]:
    """Return a VM's speed relative to home's while both worked, and its boot times, from a run."""
    marks = [(mark.at_s, mark.kind, mark.vm) for mark in record.marks]
    began = {vm: at_s for at_s, kind, vm in marks if kind == "vm_start"}
    boots = tuple(at_s - began[vm] for at_s, kind, vm in marks if kind == "vm_ready")
    rates = [line["seen"]["rates"] for line in lines if line["phi_data"]]
    speeds = [rate / of[HOME] for of in rates if HOME in of for lane, rate in of.items() if lane != HOME]
    if not boots or not speeds:
        raise SystemExit("the run of --vm-as-in used no VM")
    return float(np.median(speeds)), MeasuredBoot(type="measured", times_s=boots)


def beside_a_vm(record: GatewayRecord) -> float:
    """Return home's rate while a VM works as a part of its rate before: on one machine they share its memory."""
    rates = served_in(record)
    ready_s = [mark.at_s for mark in record.marks if mark.kind == "vm_ready"]
    if not ready_s:
        raise SystemExit("the run of --vm-as-in used no VM")
    home = [(slot.at_s > ready_s[0], rates(at, True)[0]) for at, slot in enumerate(record.slots) if _behind(slot)]
    after, before = (np.median([rate for with_vm, rate in home if with_vm is wanted]) for wanted in (True, False))
    return float(after / before)


def _behind(slot: Slot) -> bool:
    return (slot.latency_ms or 0.0) > BEHIND_MS


def served_beside(home_per_s: float, beside: float, vm_speed: float) -> Callable[[int, bool], tuple[float, float]]:
    """Return the rates of home and of a VM, of which one slows the other down."""
    print(f"home serves {home_per_s:,.0f} events/s, and {beside:.2f} of that while a VM works")

    def served(slot: int, vm_worked: bool) -> tuple[float, float]:  # noqa: ARG001
        return home_per_s * (beside if vm_worked else 1.0), home_per_s * beside * vm_speed

    return served


def full_rate(query: QueryOptions) -> float:
    """Return how many events a second micro-batches of full runs serve."""
    assert query.batch_s is not None
    assert query.event_s is not None
    events = query.batch_runs * query.run_events
    return events / (query.batch_s + (query.batch_runs - 1) * query.further_run_s + events * query.event_s)


def simulated(
    world: WorldOptions, slots: int, served: Callable[[int, bool], tuple[float, float]] | None = None
) -> Played:
    """Return what happens in a simulated run in its first slots.

    Args:
        world: of the run.
        slots: so many.
        served: the rates of home and of the VM in a slot, by its number and whether the VM worked in the one before.
    """
    rows: list[tuple[float, float, float]] = []
    vm_worked = False

    class Watched(Scheduler):
        """A scheduler that records its decisions about the first query."""

        def handle(self, event: Event) -> list[Command]:
            """See ``Scheduler.handle``."""
            nonlocal vm_worked
            commands = super().handle(event)
            if isinstance(event, SlotEnded):
                vm_worked = any(lane != HOME and done for lane, done in event.queries[0].completed_events.items())
            judged = not any(isinstance(command, Ask) for command in commands)
            if isinstance(event, SlotEnded | SlotAnswered) and judged:
                first = self.last_decisions[0]
                rows.append((first.slot.input_rate, float(first.phi_vm), float(first.phi_data)))
            return commands

    options = replace(fluid_world(world), every_slot=True, make_scheduler=Watched)
    if served is not None:
        options = replace(options, served=lambda slot: served(slot, vm_worked))
    outcome = FluidWorld(options).run()
    return Played(Course(*np.array(rows[:slots]).T), outcome.mean_s, outcome.usd)


def world_of(folder: Path, record: GatewayRecord, measured: Calibration, seed: int, *, predicted: bool) -> WorldOptions:
    """Return the world of a run: with the arrivals of its config if it is predicted, else with those that it had."""
    config = load(folder / "config.yaml")
    (name,) = config.queries
    if predicted:
        for_s = configured_s(config)
        if for_s is None:
            raise SystemExit(f"{folder / 'config.yaml'} has no profile of a replay, so nothing can be predicted")
        world = plan(config, served_per_s=None, for_s=for_s, seed=seed, calibration=measured)
        # A replay is as even as its rates.
        return replace(world, queries=tuple(replace(query, poisson=False) for query in world.queries))
    trace = {name: _by_slots(record, config.gateway.slot_s, read_trace(folder / "trace.csv")[name].event_bytes)}
    return plan(config, served_per_s=None, for_s=0, seed=seed, trace=trace, calibration=measured)


def _by_slots(record: GatewayRecord, slot_s: float, event_bytes: int) -> Recorded:
    """Return the arrivals by the slots of the run: the seconds of a trace begin somewhere within them."""
    ends_s = [slot.at_s for slot in record.slots]
    events = [
        slot.input_rate * (slot.at_s - began_s) for slot, began_s in zip(record.slots, [0.0, *ends_s[:-1]], strict=True)
    ]
    return Recorded(RecordedRates([(at + 0.5) * slot_s for at in range(len(events))], events), ends_s[-1], event_bytes)


def near(what: str, was: float, expected: float, unit: str, goal: float) -> bool:
    """Print a predicted value beside the measured one, and return whether it is within the goal."""
    off = expected / was - 1 if was else float(expected > 0)
    print(f"{what}: predicted {expected:.3g} {unit}, measured {was:.3g} {unit}: {off:+.1%} (goal {goal:.0%})")
    return abs(off) <= goal


def main() -> int:
    """Compare, and return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", type=Path, help="the stage folder of spillway demo")
    parser.add_argument("parameters", type=Path, help="the file of spillway profile, for one query")
    parser.add_argument("run", help="the run to simulate")
    machines = parser.add_mutually_exclusive_group(required=True)
    machines.add_argument("--vm-as-in", metavar="RUN", help="take the properties of a VM from this run")
    machines.add_argument("--as-recorded", action="store_true", help="machines are as fast in each slot as they were")
    parser.add_argument("--predicted", action="store_true", help="take the arrivals from the config, with --vm-as-in")
    parser.add_argument("--seed", type=int, default=1, help="the seed of boot times")
    chosen = parser.parse_args()
    if chosen.predicted and not chosen.vm_as_in:
        parser.error("--predicted needs --vm-as-in: an earlier run")
    (costs,) = read_calibration(chosen.parameters).queries.values()
    like = chosen.vm_as_in or chosen.run
    told, other = (read_record(chosen.stage / name / "record.json") for name in (chosen.run, like))
    decisions = chosen.stage / "state" / "decisions"
    speed, boot = vm_as_in(other, ledger(decisions, like))
    measured = Calibration(queries={chosen.run: costs}, vm_speed=speed, boot=boot)
    seen = recorded(told, ledger(decisions, chosen.run))
    world = world_of(chosen.stage / chosen.run, told, measured, chosen.seed, predicted=chosen.predicted)
    served: Callable[[int, bool], tuple[float, float]] | None = None
    if chosen.as_recorded:
        served = served_in(told)
    elif chosen.predicted:
        served = served_beside(full_rate(world.queries[0]), beside_a_vm(other), speed)
    played = simulated(world, len(told.slots), served)
    slots = min(len(seen.wanted), len(played.course.wanted))
    wanted, sends = (
        getattr(seen, name)[:slots] == getattr(played.course, name)[:slots] for name in ("wanted", "sends")
    )
    both, goal = float((wanted & sends).mean()), PREDICTED_GOAL if chosen.predicted else GOAL
    print(f"a VM has {speed:.2f} of home's speed and boots in {', '.join(f'{at_s:.1f}' for at_s in boot.times_s)} s")
    print(f"{slots} slots: a VM is wanted {wanted.mean():.1%}, events go to it {sends.mean():.1%}, both {both:.1%}")
    reached = [both >= goal]
    if chosen.predicted:
        totals = told.totals
        reached.append(near("mean latency", totals.latency_ms.mean / 1e3, played.mean_s, "s", LATENCY_GOAL))
        reached.append(near("cost", totals.vms.usd, played.usd, "USD", COST_GOAL))
    print(f"goal {goal:.0%} of the slots: {'all reached' if all(reached) else 'missed'}")
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
