"""Whether the simulator decides as a recorded run did, slot by slot.

    spillway run CONFIG --until-drained --report run.json --record trace.csv
    spillway profile CONFIG --query NAME --out measured.yaml
    python bench/recorded_vs_simulated.py CONFIG run.json trace.csv STATE_DIR/decisions --parameters measured.yaml

The trace is played to the config in a fluid world whose scheduler is asked in every slot. Two decisions are compared of
the config's first query, which is the one that a report tells of: whether a VM is wanted (equation 1), and whether
events go to it (equation 2). The two time axes begin at different moments; they are laid over each other where the
inputs agree best. Goal: both agree in 95 % of the slots.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gateway.config import load
from gateway.demo.record import RunRecord, read_record
from gateway.scheduler import Scheduler
from gateway.simulate.calibration import Calibration, read_calibration
from gateway.simulate.contest import fluid_world
from gateway.simulate.fluid.world import FluidWorld
from gateway.simulate.plan import plan, read_trace
from policies.arrays import Array, IntArray
from policies.signals import Command, Event, SlotEnded

GOAL = 0.95
SHIFT_MOST_SLOTS = 300


@dataclass(frozen=True, slots=True)
class Course:
    """What was decided in each slot; all of shape (slots,)."""

    input_rate: Array
    wanted: Array
    sends: Array


def recorded(record: RunRecord, lines: list[dict[str, Any]]) -> Course:
    """Return the course of a run: its ledger has a line for each slot in which a decision changed.

    Args:
        record: of the run.
        lines: of its ledger, of one query.
    """
    rates = np.array([slot.input_rate for slot in record.slots])
    slot_s = float(np.median(np.diff([slot.at_s for slot in record.slots])))
    at = np.round((np.array([line["wall_s"] for line in lines]) - lines[0]["wall_s"]) / slot_s).astype(int)
    seen = np.array([line["seen"]["input_rate"] for line in lines])
    # The report tells of each slot but not when it was; both tell the same input rates.
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


def simulated(config_path: Path, trace: Path, served_per_s: float | None, measured: Calibration, seed: int) -> Course:
    """Return the course of the simulated run."""
    rows: list[tuple[float, float, float]] = []

    class Watched(Scheduler):
        """A scheduler whose decisions on the first query are written down."""

        def handle(self, event: Event) -> list[Command]:
            """See ``Scheduler.handle``."""
            commands = super().handle(event)
            if isinstance(event, SlotEnded):
                first = self.last_decisions[0]
                rows.append((event.queries[0].input_rate, float(first.phi_vm), float(first.phi_data)))
            return commands

    config = load(config_path)
    world = plan(config, served_per_s=served_per_s, for_s=0, seed=seed, trace=read_trace(trace), calibration=measured)
    FluidWorld(replace(fluid_world(world), every_slot=True, make_scheduler=Watched)).run()
    return Course(*np.array(rows).T)


def laid_over(one: Course, other: Course) -> tuple[Course, Course, int]:
    """Return the slots that both have, where their inputs agree best, and by how many slots that shifts the second."""
    best, found = -np.inf, 0
    for shift in range(-SHIFT_MOST_SLOTS, SHIFT_MOST_SLOTS + 1):
        a, b = _overlap(one.input_rate, other.input_rate, shift)
        if len(a) < min(len(one.input_rate), len(other.input_rate)) / 2:
            continue
        score = -float(np.abs(a - b).mean())
        if score > best:
            best, found = score, shift
    pairs = [_overlap(getattr(one, name), getattr(other, name), found) for name in ("input_rate", "wanted", "sends")]
    return Course(*(a for a, _ in pairs)), Course(*(b for _, b in pairs)), found


def _overlap(one: Array, other: Array, shift: int) -> tuple[Array, Array]:
    one, other = (one[shift:], other) if shift >= 0 else (one, other[-shift:])
    slots = min(len(one), len(other))
    return one[:slots], other[:slots]


def main() -> int:
    """Compare, and return 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path, help="that was run")
    parser.add_argument("report", type=Path, help="of spillway run --report")
    parser.add_argument("trace", type=Path, help="of spillway run --record")
    parser.add_argument("decisions", type=Path, help="the folder decisions of its state_dir")
    parser.add_argument("--parameters", type=Path, help="of spillway profile")
    parser.add_argument("--served", type=float, help="events a second that a host serves, without parameters")
    parser.add_argument("--seed", type=int, default=1, help="of boot times")
    chosen = parser.parse_args()
    measured = Calibration() if chosen.parameters is None else read_calibration(chosen.parameters)
    first = next(iter(load(chosen.config).queries))
    seen = recorded(read_record(chosen.report), ledger(chosen.decisions, first))
    played = simulated(chosen.config, chosen.trace, chosen.served, measured, chosen.seed)
    seen, played, shift = laid_over(seen, played)
    wanted, sends = seen.wanted == played.wanted, seen.sends == played.sends
    both = float((wanted & sends).mean())
    print(f"{len(wanted)} slots laid over each other, the simulated ones {shift} later")
    print(f"| a VM is wanted | {wanted.mean():.1%} |\n| events go to it | {sends.mean():.1%} |\n| both | {both:.1%} |")
    print(f"goal {GOAL:.0%}: {'reached' if both >= GOAL else 'missed'}")
    return 0 if both >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
