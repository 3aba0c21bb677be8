"""Worlds of a query in parts: nothing is lost, twice or out of order, and each key's state goes on where it was."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from engines.simulated.generators import ConstantRate
from gateway.query.flow.keyed.split import split
from gateway.query.flow.run import Run
from gateway.simulate.options import KeyLoad
from gateway.simulate.runs.keyed.counting import KEY, TIME, Counts, CountsOracle, KeyedRows, counted
from gateway.simulate.runs.outcomes import WorldOutcome
from gateway.simulate.runs.promises import BrokenPromiseError
from gateway.simulate.runs.world import World
from tests.worlds.divided_worlds import divided_world, live_divided
from tests.worlds.drawing import drawn

SEEDS = range(1, 201)
THOROUGH_SEEDS = range(1001, 1004)
PARTS = 3


@pytest.fixture(scope="module")
def lived() -> tuple[dict[int, str], dict[int, WorldOutcome], str]:
    """The errors and the outcomes by seed, and everything that happened in all worlds."""
    found = {seed: live_divided(seed, keep_trace=True) for seed in SEEDS}
    errors = {seed: outcome for seed, (_, outcome) in found.items() if isinstance(outcome, str)}
    outcomes = {seed: outcome for seed, (_, outcome) in found.items() if not isinstance(outcome, str)}
    return errors, outcomes, "".join(line for world, _ in found.values() for line in world.trace.lines)


def test_every_world_keeps_its_promises(lived: tuple[dict[int, str], dict[int, WorldOutcome], str]) -> None:
    assert lived[0] == {}


def test_promises_hold_after_each_step() -> None:
    broken = {s: outcome for s in THOROUGH_SEEDS if isinstance(outcome := live_divided(s, thorough=True)[1], str)}
    assert broken == {}


def test_the_worlds_are_worth_living_in(lived: tuple[dict[int, str], dict[int, WorldOutcome], str]) -> None:
    _, outcomes, happened = lived
    (queries,) = zip(*(outcome.queries for outcome in outcomes.values()), strict=True)
    assert sum(query.cloud_events for query in queries) > 0.1 * sum(query.events for query in queries)
    assert happened.count(" moved from home to vm") > len(SEEDS)
    assert happened.count(" to home in ") > len(SEEDS) / 2
    for what in ("the gateway is killed", "VmLost", "is opened again", "dies", "hangs", "to be elsewhere", "now: "):
        assert happened.count(what) > len(SEEDS) / 30


def test_the_same_seed_is_the_same_world(lived: tuple[dict[int, str], dict[int, WorldOutcome], str]) -> None:
    first, last = SEEDS[0], SEEDS[-1]
    assert lived[1][first].digest != lived[1][last].digest
    again = live_divided(first)[1]
    assert again == lived[1][first]


def calm(share: float | None, hot: float) -> World:
    """A world without faults, whose home carries half of its events."""
    world = divided_world(1)
    settings = replace(world.queries[0].settings, share=share)
    keys = KeyLoad(keys=100, hot=hot)
    query = replace(
        world.queries[0],
        settings=settings,
        load=ConstantRate(1000.0),
        keys=keys,
        parts=4,
        killed_at_step=0.0,
        killed_at_look=0.0,
    )
    machines = replace(world.machines, events_per_s=600.0, batch_s=0.01, cores=1, link_bytes_per_s=1e7)
    faults = type(world.faults)()
    scheduler = replace(world.scheduler, queries=(settings,), max_vms=1)
    return World(
        replace(world, queries=(query,), machines=machines, faults=faults, scheduler=scheduler), keep_trace=True
    )


def test_about_as_many_events_leave_home_as_the_share_says_and_come_back() -> None:
    world = calm(share=0.5, hot=0.0)
    query = world.run().queries[0]
    assert 0.25 < query.cloud_events / query.events < 0.6
    lines = [line for line in world.trace.lines if " moved from " in line]
    assert any("to vm-1" in line for line in lines)
    assert any("to home" in line for line in lines)


def test_nothing_is_rented_where_one_key_is_the_limit() -> None:
    world = calm(share=None, hot=0.97)
    outcome = world.run()
    assert not any(" moved from " in line for line in world.trace.lines)
    assert outcome.queries[0].cloud_events == 0
    assert any(
        "one part of its keys has 97%" in line or "one part of its keys has 98%" in line for line in world.trace.lines
    )


# --------------------------------------------------------------------------------------------------------- the oracle


def run_of(first_seq: int, keys: list[int]) -> Run:
    times = [1000 * (first_seq + at) for at in range(len(keys))]
    batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(times)], names=[KEY, TIME])
    return Run(first_seq, first_seq + len(keys) - 1, batch, 0.0, 100)


def test_what_parts_count_is_what_a_plain_loop_counts() -> None:
    draw = random.Random(1)  # no secret
    oracle, states, so_far = CountsOracle("q", 8), [Counts()] * PARTS, [0] * 8
    first = 0
    for _ in range(40):
        keys = [draw.randrange(8) for _ in range(draw.randint(1, 9))]
        run = run_of(first, keys)
        oracle.logged(run)
        for key in keys:
            so_far[key] += 1
        answers = []
        for part, piece in enumerate(split(run, KEY, PARTS, {"": TIME})):
            states[part], answer = counted(states[part], piece)
            oracle.check_part(answer, run.first_seq, run.last_seq, "a part")
            assert {int(key): int(count) for key, count in zip(answer.keys, answer.counts, strict=True)} == {
                key: so_far[key] for key in answer.keys.tolist()
            }
            answers.append(answer)
        oracle.check_all(answers, run.first_seq, run.last_seq)
        with pytest.raises(BrokenPromiseError, match="wrong results"):
            oracle.check_all([each for each in answers if len(each.keys)][1:] or answers * 2, first, run.last_seq)
        first = run.last_seq + 1


def test_an_event_that_is_counted_twice_or_not_at_all_is_noticed() -> None:
    oracle, run = CountsOracle("q", 8), run_of(0, [1, 2, 1])
    oracle.logged(run)
    for state in (Counts(np.array([0, 1, 0])), Counts(np.zeros(3, dtype=np.intp), 10_000)):
        _, answer = counted(state, split(run, KEY, 1, {"": TIME})[0])
        with pytest.raises(BrokenPromiseError, match="a part: 0-2"):
            oracle.check_part(answer, 0, 2, "a part")


def test_keys_are_as_popular_as_said() -> None:
    rows = KeyedRows(KeyLoad(keys=10, skew=1.0, hot=0.5, changes_s=10.0), np.random.default_rng(1))
    first = np.bincount(rows(10_000, 1.0).column(KEY).to_numpy(), minlength=11) / 10_000
    assert first.max() == pytest.approx(0.5, abs=0.02)
    assert sorted(first)[-2] == pytest.approx(0.5 / 2.93, abs=0.02)
    later = np.bincount(rows(10_000, 11.0).column(KEY).to_numpy(), minlength=11) / 10_000
    assert later.argmax() != first.argmax()


def test_a_world_of_make_worlds_in_ten_has_a_query_in_parts() -> None:
    divided = [seed for seed in range(1, 31) if drawn(seed).queries[0].parts]
    assert divided == [8, 18, 28]
