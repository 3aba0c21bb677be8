"""Patterns drawn at random over one to six lanes that come and go, in real Spark, against the sequential operator."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from engines.isolation.verdicts import Verdicts
from engines.query.selections.expansion import expanded
from gateway.simulate.options import SelectionLoad
from gateway.simulate.runs.outcomes import WorldOutcome
from gateway.simulate.runs.world import World
from infra.queryplan import SelectionConditions
from tests.engines.pattern_queries import SCHEMA, known, rule_of
from tests.selections.patternoracle import Case, Event, Found, Step, matches, plain
from tests.worlds.selection_worlds import Rows, static_world

EXAMPLES = 8
KINDS = "abcd"


def is_kind(name: str, kind: str) -> Step:
    return Step(name, f"kind = '{kind}'", lambda event, _: bool(event["kind"] == kind))


def is_big(name: str, kind: str) -> Step:
    return Step(name, f"kind = '{kind}' AND v > 1", lambda event, _: bool(event["kind"] == kind and event["v"] > 1))


def is_odd(name: str, kind: str) -> Step:
    """Return a step that only Spark evaluates whole."""
    return Step(
        name, f"kind = '{kind}' AND v % 2 = 1", lambda event, _: bool(event["kind"] == kind and event["v"] % 2 == 1)
    )


def is_above(name: str, kind: str) -> Step:
    """Return a step that reads the event of the first one, ``s0``."""

    def meets(event: Event, found: Found) -> bool:
        return bool(event["kind"] == kind and event["v"] > found["s0"]["v"])

    return Step(name, f"kind = '{kind}' AND v > s0.v", meets)


def is_same(name: str, _kind: str) -> Step:
    """Return a step for the next big event of the same kind as the first one."""

    def meets(event: Event, found: Found) -> bool:
        return bool(event["kind"] == found["s0"]["kind"] and event["v"] > 1)

    return Step(name, "kind = s0.kind AND v > 1", meets)


ALONE = (is_kind, is_big)
"""What the gateway evaluates itself."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    operator = draw(st.sampled_from(("sequence", "conjunction", "disjunction", "aperiodic", "periodic")))
    restricted = operator != "disjunction" and draw(st.booleans())
    opening = ALONE if restricted else (*ALONE, is_odd)
    if operator == "disjunction":
        return Case(operator, _steps(draw, draw(st.integers(2, 4)), opening, opening))
    within_ms = draw(st.sampled_from((800, 2_500, 6_000)))
    if operator == "conjunction":
        later = opening if restricted else (*opening, is_above)
        return Case(operator, _steps(draw, draw(st.integers(2, 3)), opening, later), within_ms, restricted=restricted)
    count = {"aperiodic": 3, "periodic": 2}.get(operator) or draw(st.integers(2, 4))
    steps = _steps(draw, count, opening, (*ALONE, is_odd, is_above, is_same))
    # The last step ends a selection early if the gateway evaluates all of it.
    ends = operator != "sequence" or len(steps) == 2
    if operator == "sequence":
        times = ["one", *(draw(st.sampled_from(("one", "one", "many", "none"))) for _ in steps[1:])]
        steps = [replace(step, times=said) for step, said in zip(steps, times, strict=True)]
        ends = ends and times[-1] == "one"
    elif operator == "aperiodic":
        steps[1] = replace(steps[1], times="many")
    sql = steps[-1].sql
    is_alone = "%" not in sql and ("s0." not in sql or ("= s0.kind" in sql and not restricted))
    closes = steps[-1].meets if ends and is_alone else None
    every_ms = 300 if operator == "periodic" else 0
    return Case(operator, steps, within_ms, every_ms=every_ms, restricted=restricted, closes=closes)


def _steps(draw: st.DrawFn, count: int, first: tuple[Any, ...], later: tuple[Any, ...]) -> list[Step]:
    makers = [draw(st.sampled_from(first)), *(draw(st.sampled_from(later)) for _ in range(count - 1))]
    return [make(f"s{at}", draw(st.sampled_from(KINDS))) for at, make in enumerate(makers)]


def drawn_event(chance: random.Random) -> dict[str, Any]:
    return {"kind": chance.choice(KINDS), "v": float(chance.randint(0, 3))}


def runs_of(
    seed: int, vms: int, case: Case, conditions: SelectionConditions | None
) -> tuple[list[pa.RecordBatch], Rows]:
    """Return what the sink of a world gets, run by run, and the events."""
    delivered: list[pa.RecordBatch] = []
    rows = Rows(seed, drawn_event, SCHEMA)
    load = SelectionLoad(
        rule=rule_of(case), conditions=conditions, rows=rows, deliver=delivered.append, killed_per_s=0.03
    )
    outcome = World(static_world(seed, vms, load)).run()
    assert isinstance(outcome, WorldOutcome)
    note(f"{outcome.vms} VMs, {outcome.queries[0].cloud_events} of {outcome.queries[0].events} events on them")
    return delivered, rows


@settings(max_examples=EXAMPLES, deadline=None, phases=(Phase.explicit, Phase.generate), print_blob=True)
@given(case=cases(), seed=st.integers(1, 10_000), vms=st.integers(0, 5))
def test_matches_are_those_of_the_sequential_operator(spark: SparkSession, case: Case, seed: int, vms: int) -> None:
    query, rule = known(spark, rule_of(case)), rule_of(case)
    note(f"{case.operator}: {[(step.sql, step.times) for step in case.steps]}")
    delivered, rows = runs_of(seed, vms, case, query.plan.selecting)
    found = [
        result
        for batch in delivered
        if batch.num_rows
        for result in Verdicts(query, spark).results(expanded(batch, rule)[0]).to_pylist()
    ]
    expected = matches(case, rows.events)
    wanted = [{key.removesuffix("_ms"): plain(value) for key, value in each.items()} for each in expected]
    said = [{key: plain(value) for key, value in each.items() if key != "selection"} for each in found]
    assert said == wanted
