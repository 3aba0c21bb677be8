"""Worlds of one query with selections, whose lanes come and go, and whose gateway is killed.

python tests/worlds/selection_worlds.py [COUNT] [FIRST_SEED]      COUNT worlds (1000) from FIRST_SEED (1) on
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow as pa

from engines.query.selections.expansion import expanded
from engines.simulated.generators import Bursts, ConstantRate
from gateway.simulate.options import SelectionLoad, WorldOptions
from gateway.simulate.runs.outcomes import WorldOutcome
from gateway.simulate.runs.promises import BrokenPromiseError, promise
from gateway.simulate.runs.world import World
from infra.messages import SELECTION, Predicate, SelectionRule
from infra.queryplan import SelectionConditions
from policies.money.ledger import Budget
from policies.planning.plain import StaticOptions
from tests.selections.sequential import Event, Sequential
from tests.worlds.drawing import drawn

LOAD_S = 20.0
BEGIN_MS = 1_700_000_000_000
SCHEMA = pa.schema({"n": pa.int64(), "at": pa.timestamp("ms", tz="UTC"), "kind": pa.int64(), "vehicle": pa.string()})
CONDITIONS = SelectionConditions(
    opening=Predicate(op="eq", column=("kind",), value=0), closing=Predicate(op="eq", column=("kind",), value=1)
)


class Rows:
    """Draws events with a number, a time that mostly rises, and a kind.

    Args:
        seed: of random draws.
        make: returns more columns of an event.
        schema: of the rows; they have the columns ``n`` and ``at``, too.

    Attributes:
        events: what it has drawn: the number ``n``, the time ``ms``, and the columns of ``make``.
    """

    def __init__(self, seed: int, make: Callable[[random.Random], dict[str, Any]], schema: pa.Schema) -> None:
        self.events: list[dict[str, Any]] = []
        self._draw = random.Random(f"rows {seed}")
        self._make = make
        self._schema = schema

    def __call__(self, events: int, until_s: float) -> pa.RecordBatch:
        """Return the next so many."""
        drawn = []
        for at in range(events):
            late_ms = self._draw.choice((0, 0, 0, 0, 150))
            ms = BEGIN_MS + round(until_s * 1e3) - 5 * (events - at) - late_ms
            drawn.append({"n": len(self.events) + at, "ms": ms, **self._make(self._draw)})
        self.events += drawn
        rows = [{**each, "at": datetime.fromtimestamp(each["ms"] / 1e3, UTC)} for each in drawn]
        return pa.RecordBatch.from_pylist(rows, schema=self._schema)


def selection_world(
    seed: int, load: SelectionLoad, *, rate_per_s: float, overlap: float = 1.0, load_s: float = LOAD_S
) -> WorldOptions:
    """Return a world of one query with this load, and up to six lanes; the faults are those of ``make worlds``.

    Hosts are fast enough for events that are in so many selections: one that dies each minute ends no run of a minute.
    """
    draw = random.Random(f"selections {seed}")
    world = drawn(seed, load_s=load_s, moves=False)
    settings = replace(
        world.queries[0].settings,
        mode="auto",
        share=draw.choice([None, 0.5, 0.8, 1.0]),
        switchable=True,
        policy=None,
    )
    query = replace(
        world.queries[0],
        settings=settings,
        load=Bursts(ConstantRate(rate_per_s), every_s=10.0, for_s=4.0, times=2.0),
        selections=load,
        stateful=False,
        ordered=True,
        flush_s=None,
        run_s=draw.choice([0.4, 1.0]),
        run_events=1000,
    )
    scheduler = replace(
        world.scheduler,
        queries=(settings,),
        max_vms=draw.randint(1, 5),
        budget=Budget(),
        boot_s=1.0,
        slot_s=1.0,
        sheds=False,
    )
    machines = replace(world.machines, events_per_s=20.0 * rate_per_s * overlap)
    faults = replace(world.faults, stuck_boot=0.0, failed_launch=0.2 * world.faults.failed_launch)
    return replace(world, queries=(query,), scheduler=scheduler, machines=machines, faults=faults)


def static_world(seed: int, vms: int, load: SelectionLoad) -> WorldOptions:
    """Return a world with so many VMs, each of which may be lost and replaced, and few long runs, for real Spark."""
    rate_per_s = 10.0
    # Each event of a burst may open a selection.
    overlap = max(1.0, 2.0 * rate_per_s * load.rule.after_ms / 1e3)
    world = selection_world(seed, load, rate_per_s=rate_per_s, overlap=overlap, load_s=40.0)
    settings = replace(world.queries[0].settings, policy=StaticOptions(vms))
    query = replace(world.queries[0], settings=settings, run_s=3.0)
    scheduler = replace(world.scheduler, queries=(settings,), max_vms=vms)
    faults = replace(world.faults, crash_per_s=0.02, reclaim_per_s=0.02)
    return replace(world, queries=(query,), scheduler=scheduler, faults=faults)


def drawn_rule(draw: random.Random) -> SelectionRule:
    """Return a rule by time, by number, or by conditions."""
    opens = draw.choice(("time", "count", "match"))
    closes = draw.choice(("time", "count", "both"))
    return SelectionRule(
        column="at",
        each_ms=draw.choice((50, 400, 3_000)) if opens == "time" else 0,
        each_events=draw.choice((1, 7, 200)) if opens == "count" else 0,
        after_ms=draw.choice((60, 900, 5_000)) if closes != "count" else 0,
        events=draw.choice((1, 20, 500)) if closes != "time" else 0,
        most_events=draw.choice((300, 1_000_000)),
        most_open=1_000_000,
        closes_same="vehicle" if (same := opens == "match" and draw.random() < 0.5) else "",
        disjoint=not same and draw.random() < 0.3,
    )


def overlap_of(rule: SelectionRule, rate_per_s: float) -> float:
    """Return about how many selections an event is in, at least one."""
    lengths = [rule.after_ms / 1e3 * rate_per_s, rule.events, rule.most_events]
    opens = min(1.0, 1e3 / (rule.each_ms * rate_per_s)) if rule.each_ms else 1.0 / (rule.each_events or 6)
    return max(1.0, opens * min(length for length in lengths if length))


def members(batch: pa.RecordBatch, rule: SelectionRule) -> list[tuple[int, list[int]]]:
    """Return the selections of a run, as a host sees them, each with its events."""
    rows, _ = expanded(batch, rule)
    found: dict[int, list[int]] = {}
    for number, event in zip(rows.column(SELECTION).to_pylist(), rows.column("n").to_pylist(), strict=True):
        found.setdefault(number, []).append(event)
    return sorted(found.items())  # as the engine sorts results


def wanted(rule: SelectionRule, events: Sequence[dict[str, Any]], *, by_match: bool) -> list[tuple[int, list[int]]]:
    """Return what the sequential operator gives, in order of its selections."""
    sequential = Sequential(
        slide_ms=rule.each_ms or None,
        slide=rule.each_events or None,
        window_ms=rule.after_ms or None,
        count=rule.events or None,
        on_match=by_match,
        most=rule.most_events,
        disjoint=rule.disjoint,
        same=bool(rule.closes_same),
    )
    said = [Event(each["ms"], each["kind"] == 0, each["kind"] == 1, each["vehicle"]) for each in events]
    return sorted((number, inside) for number, inside, _ in sequential.run(said))


def _drawn_event(chance: random.Random) -> dict[str, Any]:
    return {"kind": chance.choice((0, 1, 2, 2, 2, 2)), "vehicle": chance.choice((None, "a", "b", "c", "d"))}


def live_selecting(seed: int, *, keep_trace: bool = False) -> tuple[World, WorldOutcome | str]:
    """Simulate such a world, and compare what its sink gets with the sequential operator."""
    draw = random.Random(f"rule {seed}")
    rule = drawn_rule(draw)
    conditions = None if rule.each_ms or rule.each_events else CONDITIONS
    rows = Rows(seed, _drawn_event, SCHEMA)
    got: list[tuple[int, list[int]]] = []
    load = SelectionLoad(
        rule=rule,
        conditions=conditions,
        rows=rows,
        deliver=lambda batch: got.extend(members(batch, rule)),
        killed_per_s=draw.choice((0.0, 0.02, 0.1)),
    )
    rate_per_s = draw.choice((30.0, 100.0))
    options = selection_world(seed, load, rate_per_s=rate_per_s, overlap=overlap_of(rule, rate_per_s))
    world = World(options, keep_trace=keep_trace)
    try:
        outcome = world.run()
        expected = wanted(rule, rows.events, by_match=conditions is not None)
        promise(got == expected, f"{len(got)} selections came, {len(expected)} should")
    except (BrokenPromiseError, AssertionError, KeyError, ValueError) as error:
        return world, f"{type(error).__name__}: {error}"
    return world, outcome


def error_of(seed: int) -> str:
    """Simulate a world; return its error, or nothing."""
    outcome = live_selecting(seed)[1]
    return outcome if isinstance(outcome, str) else ""


def main(arguments: list[str]) -> int:
    """Simulate the worlds that the arguments name."""
    count = int(arguments[0]) if arguments else 1000
    first = int(arguments[1]) if len(arguments) > 1 else 1
    seeds, broken = range(first, first + count), 0
    with ProcessPoolExecutor() as pool:
        for seed, error in zip(seeds, pool.map(error_of, seeds, chunksize=5), strict=True):
            if error:
                broken += 1
                print(f"world {seed}: {error}", flush=True)
    print(f"{count} worlds with selections; {broken} broke a promise")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
