"""Rises after large trades, through a gateway at home and through FlinkCEP: the same matches, and how fast each is.

Both read the same file of JSON lines, and take turns. Both keep the process that does the work, and its first turn over
each input is not measured, so that no start and no first compilation counts.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from planning.document import table
from state.workloads import AT_HOME, DEADLINE_S, took_s

from engines.ticks.generator import generate_trades
from engines.ticks.rises import RISES_SQL, rises_after_large_trades
from engines.ticks.trades import SCHEMA_DDL, Trade, read_trades
from gateway.views.runrecord import read_record
from patterns.flinkcep import FlinkCep
from tests.e2e.harness import Gateway, end_hosts
from tests.workloads.tick_oracle import rises_of

GENERATED = 100_000
TURNS = 5
DEFAULT_RUN, LONG_RUN = 2_000, 20_000
"""Each run of a query with selections is a micro-batch of Spark, which costs some time however short it is."""
INPUT = "trades.jsonl"
HEAD = (
    "trades, least rise",
    "events",
    "events in a run, at most",
    "matches",
    "all equal",
    "Spillway, events per second: median (least, most)",
    "FlinkCEP: median (least, most)",
    "FlinkCEP over Spillway: median of the turns (least, most)",
)


@dataclass(frozen=True)
class Trades:
    """An input.

    Attributes:
        title: what the table calls it.
        events: in order.
        rise: the least price after the rise as a part of the price of the large trade.
        run_events: how many events a run of the gateway may have.
    """

    title: str
    events: Sequence[Trade]
    rise: float
    run_events: int


class _Turn(NamedTuple):
    """How long each took over an input, and whether both had the oracle's matches."""

    ours_s: float
    theirs_s: float
    equal: bool


def inputs(data: Path | None) -> list[Trades]:
    """Return all inputs; those of real trades only if there is a folder with them."""
    found = []
    if data is not None:
        real = list(read_trades(sorted((data / "ticks").glob("*_trade.csv.gz"))))
        for rise, run in ((1.01, DEFAULT_RUN), (1.001, DEFAULT_RUN), (1.001, LONG_RUN)):
            found.append(Trades(f"IBM, 7 and 8 October 2013, {rise - 1:.1%}", real, rise, run))
    generated = list(generate_trades(GENERATED, seed=1))
    return found + [Trades("generated, two stocks, 1.0%", generated, 1.01, run) for run in (DEFAULT_RUN, LONG_RUN)]


def report(data: Path | None) -> str:
    """Run both over all inputs, and return the table."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name, FlinkCep(Path(name) / "flink") as flink:
        folder = Path(name)
        try:
            for number, trades in enumerate(inputs(data)):
                rows.append(_row(trades, folder / str(number), folder / "state", flink))
                print(rows[-1], file=sys.stderr, flush=True)
        finally:
            end_hosts(folder / "state")
    return table(HEAD, rows)


def _row(trades: Trades, folder: Path, state_dir: Path, flink: FlinkCep) -> tuple[object, ...]:
    folder.mkdir()
    (folder / INPUT).write_bytes(msgspec.json.Encoder().encode_lines(trades.events))
    wanted = rises_of(trades.events, trades.rise)
    turns = [_turn(trades, folder / f"turn{turn}", state_dir, flink, wanted) for turn in range(TURNS + 1)]
    count, measured = len(trades.events), turns[1:]
    return (
        trades.title,
        f"{count:,}",
        f"{trades.run_events:,}",
        f"{len(wanted):,}",
        "yes" if all(turn.equal for turn in turns) else "**no**",
        _cell([count / turn.ours_s for turn in measured], ",.0f"),
        _cell([count / turn.theirs_s for turn in measured], ",.0f"),
        _cell([turn.ours_s / turn.theirs_s for turn in measured], ".1f"),
    )


def _turn(trades: Trades, folder: Path, state_dir: Path, flink: FlinkCep, wanted: Sequence[Mapping[str, Any]]) -> _Turn:
    ours_s, ours = _through_gateway(trades, folder, state_dir)
    theirs_s = flink.rises(folder.parent / INPUT, folder / "theirs.jsonl", trades.rise)
    theirs = [json.loads(line) for line in (folder / "theirs.jsonl").read_text().splitlines()]
    theirs.sort(key=lambda found: int(found["large"]))
    turn = _Turn(ours_s, theirs_s, equal=ours == wanted and theirs == wanted)
    print(f"{trades.title}, {folder.name}: {ours_s:.2f} s, FlinkCEP {theirs_s:.2f} s", file=sys.stderr, flush=True)
    return turn


def _cell(figures: Sequence[float], form: str) -> str:
    ordered = sorted(figures)
    return f"{ordered[len(ordered) // 2]:{form}} ({ordered[0]:{form}}, {ordered[-1]:{form}})"


def _through_gateway(trades: Trades, folder: Path, state_dir: Path) -> tuple[float, list[dict[str, Any]]]:
    """Run the query to its end; return how long it took by the gateway's record, and the matches in order of release.

    Raises:
        AssertionError: the gateway did not end well in time.
    """
    folder.mkdir()
    name = f"rises-{folder.parent.name}-{folder.name}"
    query = {
        "source": {"type": "file", "path": str(folder.parent / INPUT)},
        "schema": SCHEMA_DDL,
        "pattern": rises_after_large_trades(trades.rise),
        "sql": RISES_SQL,
        "runs": {"max_events": trades.run_events},
        "sink": {"type": "file", "path": str(folder / "out" / name)},
        "qos": {"latency": "5s"},
    }
    gateway = Gateway(folder, state_dir, {name: query}, AT_HOME, more={"slot": "100ms"})
    gateway.start("--until-drained")
    code = gateway.wait(DEADLINE_S)
    assert code == 0, gateway.tail()
    matches = [{key: value for key, value in row.items() if key != "selection"} for row in gateway.rows(name)]
    return took_s(read_record(gateway.report)), matches
