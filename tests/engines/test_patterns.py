"""Patterns of Table I (Mayer et al.) in real Spark, over runs that the gateway's splitter makes, against an oracle."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engines.isolation.verdicts import Verdicts
from engines.query.known import RefusedError, understand
from engines.query.selections.expansion import expanded
from gateway.config import load
from gateway.query.flow.runlog import SelectionMark
from gateway.query.flow.selecting.selector import Selector
from gateway.query.opening import definition_of
from infra.messages import OpenQuery
from tests.engines.pattern_queries import SCHEMA, known, rule_of
from tests.selections.patternoracle import Case, Step, matches, plain

ROOT = Path(__file__).parents[2]


def is_kind(kind: str, name: str) -> Step:
    return Step(name, f"kind = '{kind}'", lambda event, _: event["kind"] == kind)


A, B, C = (is_kind(kind, kind) for kind in "abc")
HIGHER = Step(
    "higher", "kind = 'b' AND v >= a.v", lambda event, found: event["kind"] == "b" and event["v"] >= found["a"]["v"]
)
AGAIN = Step("again", "kind = a.kind", lambda event, found: event["kind"] == found["a"]["kind"])
BIG = Step("a", "kind = 'a' AND abs(v) > 3", lambda event, _: event["kind"] == "a" and event["v"] > 3)
LOWER = Step("lower", "v < a.v", lambda event, found: event["v"] < found["a"]["v"], "none", 200)
SUM = Step(
    "c",
    "kind = 'c' AND size(filter(b, x -> x.v > 2)) > 0",
    lambda e, found: e["kind"] == "c" and any(each["v"] > 2 for each in found["b"]),
)
MANY = replace(B, times="many")
NO_B = replace(B, times="none")
CASES = {
    "a then b": Case("sequence", (A, B), within_ms=300, closes=B.meets),
    "a then b, each event once": Case("sequence", (A, B), within_ms=300, closes=B.meets, restricted=True),
    "a, b, c within 8 events": Case("sequence", (A, B, C), events=8),
    "a then a higher b": Case("sequence", (A, HIGHER), within_ms=400),
    "a condition that the gateway reads in part": Case("sequence", (BIG, HIGHER, C), within_ms=400),
    "a, many b, c": Case("sequence", (A, MANY, C), within_ms=500),
    "a, many b": Case("sequence", (A, MANY), within_ms=300),
    "a, many b, c, which reads b after d": Case("sequence", (A, MANY, is_kind("d", "d"), SUM), within_ms=900),
    "a, no b, c": Case("sequence", (A, NO_B, C), within_ms=400),
    "a, many b, no d, c": Case("sequence", (A, MANY, replace(is_kind("d", "d"), times="none"), C), within_ms=600),
    "a, b, nothing lower for 200 ms": Case("sequence", (A, HIGHER, LOWER), within_ms=300),
    "a, no b until the end": Case("sequence", (A, NO_B), events=5),
    "a then another a": Case("sequence", (A, AGAIN), within_ms=3_000, closes=AGAIN.meets),
    "each b between a and another a": Case("aperiodic", (A, MANY, AGAIN), within_ms=3_000, closes=AGAIN.meets),
    "eight steps": Case(
        "sequence",
        [
            Step("a", "kind = 'a'", A.meets),
            *(Step(f"s{n}", f"kind = '{kind}'", is_kind(kind, "s").meets) for n, kind in enumerate("bcdabcd")),
        ],
        within_ms=2_000,
    ),
    "a and b and c": Case("conjunction", (A, B, C), within_ms=300),
    "a and a higher b": Case("conjunction", (A, HIGHER), events=6),
    "a or b": Case("disjunction", (A, B)),
    "each b between a and c": Case("aperiodic", (A, MANY, C), within_ms=500, closes=C.meets),
    "each higher b between a and c": Case(
        "aperiodic", (A, replace(HIGHER, times="many"), C), within_ms=500, closes=C.meets
    ),
    "every 100 ms from a to c": Case("periodic", (A, C), every_ms=100, within_ms=500, closes=C.meets),
}


def stream(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Events of four kinds, 0 to 60 ms apart, some of them late, some without a value."""
    now_ms, events = 1_700_000_000_000, []
    for n in range(count):
        now_ms += chance.randint(0, 60)
        ms = now_ms - chance.choice((0, 0, 0, 150))
        events.append({"n": n, "kind": chance.choice("abcd"), "v": float(chance.randint(0, 5)), "ms": ms})
    return events


def batch_of(events: list[dict[str, Any]]) -> pa.RecordBatch:
    rows = [{**each, "at": datetime.fromtimestamp(each["ms"] / 1e3, UTC)} for each in events]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@pytest.mark.parametrize("name", CASES)
def test_matches_are_those_of_the_sequential_operator(spark: SparkSession, name: str) -> None:
    case, seed = CASES[name], sum(map(ord, name))
    query, chance = known(spark, rule_of(case)), random.Random(seed)
    events = stream(chance, 300)
    selector = Selector(rule_of(case), query.plan.selecting, 0, SelectionMark(), 1 << 30)
    found, last = list[dict[str, Any]](), -1
    at = 0
    while at < len(events):
        end = at + chance.choice((1, 90, 130))
        rows, _ = expanded(selector.select(batch_of(events[at:end])).batch, rule_of(case))
        results = Verdicts(query, spark).results(rows).to_pylist()
        assert [row["selection"] for row in results] == sorted(row["selection"] for row in results)
        assert not results or results[0]["selection"] > last
        last = results[-1]["selection"] if results else last
        found += results
        at = end
    wanted = [{key.removesuffix("_ms"): plain(value) for key, value in each.items()} for each in matches(case, events)]
    said = [{key: plain(value) for key, value in each.items() if key != "selection"} for each in found]
    assert said == wanted, f"seed {seed}"
    assert len(wanted) >= 3, "the case has something to find"


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((A, Step("b", "kind ==== 'b'", B.meets)), "step b: "),
        ((A, Step("b", "knd = 'b'", B.meets)), 'step b: its condition reads "knd", which is no column of events'),
        ((A, Step("b", "v > c.v", B.meets), C), 'step b: its condition reads "c"'),
        ((A, MANY, Step("c", "v > b[0].v", C.meets)), 'step c: its condition reads "b"'),
        ((A, Step("b", "v IN (SELECT 1)", B.meets)), "step b: it has a subquery"),
        ((A, Step("b", "sum(v) > 3", B.meets)), "step b: "),
        ((A, Step("b", "v", B.meets)), "step b: "),
        ((Step("a", "kind = 'a' AND kind = 'b'", A.meets), B), "is never true"),
    ],
)
def test_a_condition_that_cannot_be_used_is_refused_with_its_step(
    spark: SparkSession, steps: tuple[Step, ...], why: str
) -> None:
    with pytest.raises(RefusedError, match=why):
        known(spark, rule_of(Case("sequence", steps, within_ms=100)))


def test_restricted_consumption_needs_a_condition_that_the_gateway_can_evaluate(spark: SparkSession) -> None:
    with pytest.raises(RefusedError, match="only Spark evaluates"):
        known(spark, rule_of(Case("sequence", (BIG, B), within_ms=100, restricted=True)))


def test_a_match_can_be_read_by_sql(spark: SparkSession) -> None:
    query = known(
        spark,
        rule_of(CASES["a then b"]),
        "SELECT selection, a.n AS began, b.at - a.at AS took FROM matches WHERE b.v > 1",
    )
    assert query.result_schema.names == ["selection", "began", "took"]
    assert (query.plan.switch_class, query.plan.switchable) == ("stateless", True)


def test_what_opens_and_closes_a_selection_is_known_before_the_wan(spark: SparkSession) -> None:
    selecting = known(spark, rule_of(CASES["a then b"])).plan.selecting
    assert selecting is not None
    assert (selecting.opening is not None, selecting.closing is not None, selecting.unread) == (True, True, "")
    selecting = known(spark, rule_of(CASES["a then another a"])).plan.selecting
    assert selecting is not None
    assert (selecting.closing is not None, selecting.same) == (True, "kind")
    for condition in ("kind = a.kind AND v > a.v", "kind = a.kind AND a.v IS NOT NULL", "kind < a.kind"):
        selecting = known(
            spark, rule_of(Case("sequence", (A, Step("b", condition, A.meets)), within_ms=100))
        ).plan.selecting
        assert selecting is not None
        assert (selecting.closing, selecting.same) == (None, ""), condition
    selecting = known(spark, rule_of(CASES["a condition that the gateway reads in part"])).plan.selecting
    assert selecting is not None
    assert (selecting.opening is not None, selecting.closing) == (True, None)
    assert "3" in selecting.unread


def test_the_example_finds_what_its_comments_say(spark: SparkSession, tmp_path: Path) -> None:
    trades = (
        *(("IBM", 100.0, 1_000), ("SUN", 90.0, 5), ("IBM", 101.5, 5), ("IBM", 102.0, 7)),
        *(("SUN", 80.0, 2_000), ("SUN", 81.0, 3), ("SUN", 79.0, 4), ("SUN", 90.0, 1_500)),
    )
    begin = datetime(2026, 1, 5, 14, 30, tzinfo=UTC)
    rows = [
        {"symbol": symbol, "price": price, "shares": shares, "at": begin + timedelta(seconds=5 * number)}
        for number, (symbol, price, shares) in enumerate(trades)
    ]
    rows.append({"symbol": "SUN", "price": 1.0, "shares": 50, "at": begin + timedelta(minutes=30)})
    (tmp_path / "trades.jsonl").touch()
    found = load(ROOT / "examples" / "patterns.yaml", {"SPILLWAY_TRADES": str(tmp_path / "trades.jsonl")}).queries
    results = {name: results_of(spark, definition_of(name, query, "", tmp_path), rows) for name, query in found.items()}
    # The second large trade is followed by a rise, too, and then by a fall.
    assert [(row["selection"], row["symbol"], row["before"], row["after"]) for row in results["rises"]] == [
        (0, "IBM", 100.0, 101.5)
    ]
    small = results["small-ones"]
    assert [(row["large"]["shares"], row["occurrence"], row["small"]["shares"]) for row in small] == [
        *((1_000, 1, 5), (1_000, 2, 5), (1_000, 3, 7)),
        *((2_000, 1, 3), (2_000, 2, 4)),
    ]


def results_of(spark: SparkSession, spec: OpenQuery, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a query gives of one run."""
    query, rule = understand(spark, spec), spec.selections
    assert rule is not None
    batch = pa.RecordBatch.from_pylist(rows, schema=query.input_schema)
    seen, _ = expanded(Selector(rule, query.plan.selecting, 0, SelectionMark(), 1 << 30).select(batch).batch, rule)
    results: list[dict[str, Any]] = Verdicts(query, spark).results(seen).to_pylist()
    return results
