"""Checks whether the simulator decides like the runs of a demo, slot by slot.

    make demo
    STAGE=build/demo/stage
    taskset -c 0 .venv/bin/spillway profile $STAGE/private_only/config.yaml --query private_only --out measured.yaml
    .venv/bin/python bench/recorded_vs_simulated.py $STAGE measured.yaml elastic --vm-as-in elastic_compressed
    .venv/bin/python bench/recorded_vs_simulated.py $STAGE measured.yaml elastic_compressed --vm-as-in elastic
    .venv/bin/python bench/recorded_vs_simulated.py $STAGE measured.yaml elastic --as-recorded

The arrivals of each slot of a run are simulated with its config in a fluid world that calls the scheduler in every
slot. Two decisions are compared: whether a VM is wanted (equation 1), and whether events go to it (equation 2). The
goal is that both agree in 95 % of the slots.

With ``--vm-as-in`` nothing else comes from the run itself: the cost of micro-batches is profiled on Spark alone, and
the properties of a VM come from another run. With ``--as-recorded`` machines are as in the run: when the VM was ready,
and the rates of the VM and of home. Then only the decisions are compared, not the speed of machines.
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
from gateway.simulate.fluid.world import FluidWorld
from gateway.simulate.parameters.calibration import Calibration, MeasuredBoot, read_calibration
from gateway.simulate.plan import Recorded, plan, read_trace
from gateway.views.runrecord import GatewayRecord, read_record
from policies.arrays import Array, IntArray
from policies.signals import HOME, Ask, Command, Event, SlotAnswered, SlotEnded

GOAL = 0.95
AROUND_SLOTS = 5
BEHIND_MS = 500.0


@dataclass(frozen=True, slots=True)
class Course:
    """The decisions of each slot; all of shape (slots,)."""

    input_rate: Array
    wanted: Array
    sends: Array


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


def served_in(record: GatewayRecord) -> Callable[[int], tuple[float, float]]:
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

    def served(slot: int) -> tuple[float, float]:
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


def simulated(
    folder: Path,
    record: GatewayRecord,
    measured: Calibration,
    seed: int,
    served: Callable[[int], tuple[float, float]] | None = None,
) -> Course:
    """Return the course of the simulated run, for the same slots."""
    rows: list[tuple[float, float, float]] = []

    class Watched(Scheduler):
        """A scheduler that records its decisions about the first query."""

        def handle(self, event: Event) -> list[Command]:
            """See ``Scheduler.handle``."""
            commands = super().handle(event)
            judged = not any(isinstance(command, Ask) for command in commands)
            if isinstance(event, SlotEnded | SlotAnswered) and judged:
                first = self.last_decisions[0]
                rows.append((first.slot.input_rate, float(first.phi_vm), float(first.phi_data)))
            return commands

    config = load(folder / "config.yaml")
    (name,) = config.queries
    trace = {name: _by_slots(record, config.gateway.slot_s, read_trace(folder / "trace.csv")[name].event_bytes)}
    world = plan(config, served_per_s=None, for_s=0, seed=seed, trace=trace, calibration=measured)
    options = replace(fluid_world(world), every_slot=True, make_scheduler=Watched, served=served)
    FluidWorld(options).run()
    return Course(*np.array(rows[: len(record.slots)]).T)


def _by_slots(record: GatewayRecord, slot_s: float, event_bytes: int) -> Recorded:
    """Return the arrivals by the slots of the run: the seconds of a trace begin somewhere within them."""
    ends_s = [slot.at_s for slot in record.slots]
    events = [
        slot.input_rate * (slot.at_s - began_s) for slot, began_s in zip(record.slots, [0.0, *ends_s[:-1]], strict=True)
    ]
    return Recorded(RecordedRates([(at + 0.5) * slot_s for at in range(len(events))], events), ends_s[-1], event_bytes)


def main() -> int:
    """Compare, and return 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", type=Path, help="the stage folder of spillway demo")
    parser.add_argument("parameters", type=Path, help="the file of spillway profile, for one query")
    parser.add_argument("run", help="the run to simulate")
    machines = parser.add_mutually_exclusive_group(required=True)
    machines.add_argument("--vm-as-in", metavar="RUN", help="take the properties of a VM from this run")
    machines.add_argument("--as-recorded", action="store_true", help="machines are as fast in each slot as they were")
    parser.add_argument("--seed", type=int, default=1, help="the seed of boot times")
    chosen = parser.parse_args()
    (costs,) = read_calibration(chosen.parameters).queries.values()
    like = chosen.vm_as_in or chosen.run
    told, other = (read_record(chosen.stage / name / "record.json") for name in (chosen.run, like))
    decisions = chosen.stage / "state" / "decisions"
    speed, boot = vm_as_in(other, ledger(decisions, like))
    measured = Calibration(queries={chosen.run: costs}, vm_speed=speed, boot=boot)
    seen = recorded(told, ledger(decisions, chosen.run))
    served = served_in(told) if chosen.as_recorded else None
    played = simulated(chosen.stage / chosen.run, told, measured, chosen.seed, served)
    slots = min(len(seen.wanted), len(played.wanted))
    wanted, sends = (getattr(seen, name)[:slots] == getattr(played, name)[:slots] for name in ("wanted", "sends"))
    both = float((wanted & sends).mean())
    print(f"a VM has {speed:.2f} of home's speed and boots in {', '.join(f'{at_s:.1f}' for at_s in boot.times_s)} s")
    print(f"{slots} slots: a VM is wanted {wanted.mean():.1%}, events go to it {sends.mean():.1%}, both {both:.1%}")
    print(f"goal {GOAL:.0%}: {'reached' if both >= GOAL else 'missed'}")
    return 0 if both >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
