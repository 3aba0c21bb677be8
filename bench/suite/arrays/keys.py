"""Splitting by key: which lane each event goes to, with its row."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from gateway.query.flow.keyed.split import split
from gateway.query.flow.run import Run
from policies.arrays import IntArray
from suite.row import Row, rate_of
from suite.turns import OURS, Goal, Sample

EVENTS, KEYS, SEED = 20_000, 4_096, 11
CASES = tuple((lanes, exponent) for lanes in (8, 64) for exponent in (0.0, 1.0, 1.4))
"""Numbers of lanes, and exponents of the keys' Zipf distribution."""
_PART = 0.5


def _figure(lanes: int, exponent: float) -> str:
    return f"events/s, {lanes} lanes, Zipf {exponent:g}"


def batch(exponent: float) -> pa.RecordBatch:
    """Return events with 12 columns; ``key`` follows a Zipf distribution."""
    rng = np.random.default_rng(SEED)
    weights = 1.0 / np.arange(1, KEYS + 1) ** exponent
    keys = rng.choice(KEYS, EVENTS, p=weights / weights.sum())
    columns: dict[str, pa.Array] = {"key": pa.array([f"key-{key}" for key in keys.tolist()])}
    columns |= {f"value_{at}": pa.array(rng.normal(size=EVENTS)) for at in range(11)}
    return pa.RecordBatch.from_pydict(columns)


def ours() -> Sample:
    """Measure how the gateway divides a run among the parts of a query."""
    figures = {}
    for lanes, exponent in CASES:
        events = batch(exponent)
        run = Run(0, EVENTS - 1, events, 0.0, events.nbytes)

        def work(run: Run = run, lanes: int = lanes) -> int:
            return sum(part.batch.num_rows for part in split(run, "key", lanes, {}))

        figures[_figure(lanes, exponent)] = rate_of(work, _PART)
    return Sample(figures)


def plain() -> Sample:
    """Measure a hash of each key, and a list of rows for each lane."""

    def work(events: pa.RecordBatch, lanes: int) -> int:
        rows: list[list[int]] = [[] for _ in range(lanes)]
        for at, key in enumerate(events.column("key").to_pylist()):
            rows[hash(key) % lanes].append(at)
        return sum(events.take(pa.array(mine)).num_rows for mine in rows if mine)

    return Sample(_figures(work))


def two_choices() -> Sample:
    """Measure partial key grouping: of two lanes for a key, the one with fewer events so far."""

    def work(events: pa.RecordBatch, lanes: int) -> int:
        rows: list[list[int]] = [[] for _ in range(lanes)]
        for at, key in enumerate(events.column("key").to_pylist()):
            one, other = hash(key) % lanes, hash((key, 1)) % lanes
            rows[one if len(rows[one]) <= len(rows[other]) else other].append(at)
        return sum(events.take(pa.array(mine)).num_rows for mine in rows if mine)

    return Sample(_figures(work))


def ids_and_take() -> Sample:
    """Measure the limit: Arrow numbers the keys, and all rows are taken once."""

    def work(events: pa.RecordBatch, lanes: int) -> int:
        ids: IntArray = events.column("key").dictionary_encode().indices.to_numpy() % lanes
        return int(events.take(pa.array(np.argsort(ids, kind="stable"))).num_rows)

    return Sample(_figures(work))


def _figures(work: object) -> dict[str, float]:
    assert callable(work)
    found = {}
    for lanes, exponent in CASES:
        events = batch(exponent)
        found[_figure(lanes, exponent)] = rate_of(partial(work, events, lanes), _PART)
    return found


ROW = Row(
    name="keys",
    title="split by key",
    sides={
        OURS: ours,
        "hash() % lanes": plain,
        "partial key grouping": two_choices,
        "Arrow ids and take": ids_and_take,
    },
    goals=(
        *(Goal(_figure(*case), None, 5e6) for case in CASES),
        *(Goal(_figure(*case), "hash() % lanes", 1.0) for case in CASES),
    ),
    note="Runs of 20,000 events with 12 columns and 4,096 keys; each lane gets its rows.",
)
