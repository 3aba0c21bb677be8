"""Rises after large trades: the reader, the generator, the oracle by hand, and the pattern against the oracle."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engines.isolation.verdicts import Verdicts
from engines.query.known import understand
from engines.query.selections.expansion import expanded
from engines.ticks.generator import generate_trades
from engines.ticks.rises import RISES_SQL, rises_after_large_trades
from engines.ticks.trades import SCHEMA_DDL, Trade, numbered, read_trades
from gateway.config import load
from gateway.query.flow.runlog import SelectionMark
from gateway.query.flow.selecting.selector import Selector
from gateway.query.opening import definition_of
from infra.messages import OpenQuery
from tests.workloads.places import TICKS
from tests.workloads.tick_oracle import rises_of

START = datetime(2013, 10, 7, 14, tzinfo=UTC)
LARGE = (0, 100.0, 1_000)


def made(*trades: tuple[int, float, int], symbol: str = "IBM") -> list[Trade]:
    """Return trades from milliseconds, prices and shares."""
    return [
        Trade(number=0, at=START + timedelta(milliseconds=ms), symbol=symbol, price=price, shares=shares)
        for ms, price, shares in trades
    ]


EDGES = {
    "a rise after exactly 60 s": (made(LARGE, (60_000, 101.0, 1)), [(0, 1)]),
    "a rise too late": (made(LARGE, (60_001, 101.0, 1)), []),
    "too small a rise": (made(LARGE, (1, 100.99, 1)), []),
    "too small a trade": (made((0, 100.0, 999), (1, 101.0, 1)), []),
    "the first rise counts": (made(LARGE, (1, 101.0, 1), (2, 102.0, 1)), [(0, 1)]),
    "a fall before the rise": (made(LARGE, (1, 99.0, 1), (2, 101.0, 1)), [(0, 2)]),
    "a fall after exactly 10 s": (made(LARGE, (60_000, 101.0, 1), (70_000, 99.99, 1)), []),
    "a fall after more than 10 s": (made(LARGE, (60_000, 101.0, 1), (70_001, 99.99, 1)), [(0, 1)]),
    "down to the first price": (made(LARGE, (5, 101.0, 1), (6, 100.0, 1)), [(0, 1)]),
    "all in one millisecond": (made(LARGE, (0, 101.0, 1), (0, 99.0, 1)), []),
    "a second rise after a fall": (made(LARGE, (1, 101.0, 1), (2, 99.0, 1), (3, 103.0, 1)), []),
    "two large trades": (made(LARGE, (1, 100.5, 5_000), (2, 101.0, 1), (3, 102.0, 1)), [(0, 2), (1, 3)]),
    "another stock": (made(LARGE) + made((1, 101.0, 1), (2, 99.0, 1), symbol="SUN"), []),
}


@pytest.mark.parametrize("name", EDGES)
def test_the_oracle_by_hand(name: str) -> None:
    trades, wanted = EDGES[name]
    found = rises_of(list(numbered(trades)), 1.01)
    assert [(row["large"], row["rise"]) for row in found] == wanted


def test_generated_trades_have_matches_and_near_misses() -> None:
    trades = list(generate_trades(20_000, seed=3))
    assert trades == list(generate_trades(20_000, seed=3))
    assert all(one.at <= other.at for one, other in pairwise(trades))
    assert [each.number for each in trades] == list(range(20_001))
    large = sum(each.shares >= 1_000 for each in trades)
    risen = {row["large"] for row in rises_of(trades, 1.01)}
    assert 5 < len(risen) < large / 4


def test_a_day_is_read_with_new_yorks_time_and_without_suspicious_trades(tmp_path: Path) -> None:
    lines = ["34200000,1815200,283,P,20002020,0", "34200001,1815300,1,P,1,1", "34200002,1815350,1200,N,1,0"]
    with gzip.open(tmp_path / "20131007_ibm_trade.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    begin = datetime(2013, 10, 7, 13, 30, tzinfo=UTC)
    *trades, end = read_trades([tmp_path / "20131007_ibm_trade.csv.gz"])
    assert trades == [
        Trade(number=0, at=begin, symbol="IBM", price=181.52, shares=283),
        Trade(number=1, at=begin + timedelta(milliseconds=2), symbol="IBM", price=181.535, shares=1_200),
    ]
    assert (end.number, end.symbol, end.shares) == (2, "", 0)


def test_what_is_no_trade_is_named(tmp_path: Path) -> None:
    path = tmp_path / "20131007_ibm_trade.csv"
    path.write_text("34200000,1815200,283,P,20002020,0\n34200000,dear,283,P,1,0\n")
    with pytest.raises(ValueError, match=r"ibm_trade\.csv:2: not a trade"):
        list(read_trades([path]))
    with pytest.raises(ValueError, match="the name of a file of trades"):
        list(read_trades([tmp_path / "trades.csv"]))


@pytest.mark.spark
def test_the_patterns_matches_are_the_oracles(spark: SparkSession, tmp_path: Path) -> None:
    # The cases of each edge are far enough apart.
    edges = [
        msgspec.structs.replace(trade, at=trade.at - timedelta(hours=hour))
        for hour, (trades, _) in enumerate(EDGES.values(), 2)
        for trade in trades
    ]
    trades = list(numbered([*edges, *list(generate_trades(6_000, seed=3))[:-1]]))
    wanted = rises_of(trades, 1.01)
    assert len(wanted) > sum(len(pairs) for _, pairs in EDGES.values()) + 3
    assert matches_of(spark, definition(tmp_path, 1.01), trades, run_events=2_500) == wanted


@pytest.mark.spark
@pytest.mark.skipif(not TICKS.exists(), reason="the trades are not here")
def test_real_trades_have_the_oracles_matches(spark: SparkSession, tmp_path: Path) -> None:
    trades = list(read_trades(sorted(TICKS.glob("*_trade.csv.gz"))))
    assert len(trades) > 57_000
    assert rises_of(trades, 1.01) == []
    wanted = rises_of(trades[:25_000], 1.001)
    assert len(wanted) > 20
    assert matches_of(spark, definition(tmp_path, 1.001), trades[:25_000], run_events=25_000) == wanted


def definition(folder: Path, rise: float) -> OpenQuery:
    """Return the query as an engine host gets it from a config."""
    (folder / "trades.jsonl").touch()
    query = {
        "source": {"type": "file", "path": str(folder / "trades.jsonl")},
        "schema": SCHEMA_DDL,
        "pattern": rises_after_large_trades(rise),
        "sql": RISES_SQL,
        "sink": {"type": "file", "path": str(folder / "out")},
        "qos": {"latency": "2s"},
    }
    config = {"gateway": {"state_dir": str(folder / "state")}, "queries": {"rises": query}}
    (folder / "config.yaml").write_text(json.dumps(config))
    return definition_of("rises", load(folder / "config.yaml", {}).queries["rises"], "", folder)


def matches_of(spark: SparkSession, spec: OpenQuery, trades: list[Trade], run_events: int) -> list[dict[str, Any]]:
    """Return the matches in some runs, in their order, without the column ``selection``."""
    query, rule = understand(spark, spec), spec.selections
    assert rule is not None
    selector, verdicts = Selector(rule, query.plan.selecting, 0, SelectionMark(), 1 << 30), Verdicts(query, spark)
    found: list[dict[str, Any]] = []
    for first in range(0, len(trades), run_events):
        rows = [msgspec.structs.asdict(each) for each in trades[first : first + run_events]]
        batch = pa.RecordBatch.from_pylist(rows, schema=query.input_schema)
        found += verdicts.results(expanded(selector.select(batch).batch, rule)[0]).to_pylist()
    return [{key: value for key, value in row.items() if key != "selection"} for row in found]
