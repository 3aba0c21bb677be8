"""Real queries with state through a gateway at home: how fast, and whether their results are those of the oracles."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from planning.document import table

from engines.buses import traces
from engines.buses.generator import generate_reports
from engines.snb import events as snb
from engines.snb.generator import generate_events
from gateway.views.runrecord import GatewayRecord, read_record
from tests.e2e.harness import Gateway, end_hosts
from tests.workloads.bus_oracle import windows_of
from tests.workloads.snb_oracle import top_three

GENERATED = 20_000
DEADLINE_S = 1_800.0
AT_HOME: Mapping[str, Any] = {"max_vms": 0}


@dataclass(frozen=True)
class Workload:
    """A query with its input and its oracle.

    Attributes:
        title: what the table calls it.
        events: the input, in order.
        function: the query.
        schema: of the input.
        oracle: returns the results.
        time: the column of the results that is a time.
        ordered: whether the order of the results counts.
    """

    title: str
    events: Sequence[msgspec.Struct]
    function: str
    schema: str
    oracle: Callable[[Sequence[Any]], Iterable[dict[str, Any]]]
    time: str
    ordered: bool


def posts(title: str, events: Iterable[msgspec.Struct]) -> Workload:
    """Return SNB2016's query 1 over some events."""
    return Workload(
        title, list(events), "engines.snb.activeposts:active_posts", snb.SCHEMA_DDL, top_three, "at", ordered=True
    )


def buses(title: str, reports: Iterable[msgspec.Struct]) -> Workload:
    """Return the query about lasting bus delays over some reports."""
    function = "engines.buses.delays:delayed_areas"
    return Workload(title, list(reports), function, traces.SCHEMA_DDL, windows_of, "opens", ordered=False)


def workloads(data: Path | None) -> list[Workload]:
    """Return all workloads; those of real data only if there is a folder with them."""
    found = []
    if data is not None:
        found.append(posts("SNB2016 query 1, the challenge's first half year", snb.read_events(data / "debs2016")))
        dublin = data / "dublin_bus" / "siri.20130131.csv.gz"
        found.append(buses("bus delays, Dublin (31 January 2013, 0 to 6 h)", traces.read_dublin(dublin)))
        for day in ("2016-02-07", "2016-03-22"):
            austin = data / "austin_bus" / f"vehicle_positions_{day}.csv.gz"
            found.append(buses(f"bus delays, Austin ({day})", traces.read_austin(austin)))
    found.append(posts("SNB2016 query 1, generated", generate_events(GENERATED, seed=1)))
    found.append(buses("bus delays, generated", generate_reports(10 * GENERATED, seed=1)))
    return found


def write(data: Path | None, folder: Path) -> None:
    """Write the input of both queries as JSON lines: real if there is a folder of real data, else generated."""
    found = workloads(data)
    for name, prefix in (("posts", "SNB2016"), ("buses", "bus delays")):
        first = next(each for each in found if each.title.startswith(prefix))
        (folder / f"{name}.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(first.events))
        print(f"{folder / name}.jsonl: {len(first.events):,} events ({first.title})")


def report(data: Path | None) -> str:
    """Run all workloads, and return the table."""
    return table_of(workloads(data))


def table_of(chosen: Iterable[Workload]) -> str:
    """Run workloads one after another on one engine host, and return the table."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as folder:
        state_dir = Path(folder) / "state"
        try:
            for number, workload in enumerate(chosen):
                rows.append(_row(workload, Path(folder) / str(number), state_dir))
                print(rows[-1], file=sys.stderr, flush=True)
        finally:
            end_hosts(state_dir)
    head = ("query and data", "events", "results", "events per second", "the oracle alone", "equal")
    return table(head, rows)


def _row(workload: Workload, folder: Path, state_dir: Path) -> tuple[object, ...]:
    record, found = play(workload, folder, state_dir)
    begun_s = time.perf_counter()
    wanted = list(workload.oracle(workload.events))
    oracle_s = time.perf_counter() - begun_s
    count = len(workload.events)
    return (
        workload.title,
        f"{count:,}",
        f"{len(found):,}",
        f"{count / took_s(record):,.0f}",
        f"{count / oracle_s:,.0f}",
        "yes" if is_equal(workload, found, wanted) else "**no**",
    )


def play(
    workload: Workload,
    folder: Path,
    state_dir: Path,
    cloud: Mapping[str, Any] = AT_HOME,
    *,
    rate_per_s: int | None = None,
    **options: Any,
) -> tuple[GatewayRecord, list[dict[str, Any]]]:
    """Run a workload to its end; return the gateway's record and the results in order of release.

    Args:
        workload: what runs.
        folder: new; has the input, the results and the gateway's log afterwards.
        state_dir: the gateway's.
        cloud: the config's section.
        rate_per_s: how fast events come; by default as fast as they are processed.
        options: more of the config's section of the query.

    Raises:
        AssertionError: the gateway did not end well in time.
    """
    folder.mkdir()
    name = f"workload-{folder.name}"
    (folder / "events.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(workload.events))
    source: dict[str, Any] = {"type": "file", "path": str(folder / "events.jsonl")}
    if rate_per_s is not None:
        source["replay"] = {"rate": f"{rate_per_s}/s"}
    query = {
        "source": source,
        "schema": workload.schema,
        "function": workload.function,
        "sink": {"type": "file", "path": str(folder / "out" / name)},
        "qos": {"latency": "5s"},
        **options,
    }
    gateway = Gateway(folder, state_dir, {name: query}, cloud)
    gateway.start("--until-drained")
    code = gateway.wait(DEADLINE_S)
    assert code == 0, gateway.tail()
    return read_record(gateway.report), gateway.rows(name)


def took_s(record: GatewayRecord) -> float:
    """Return the time from when the first event was due to the end of the slot with the last results."""
    return max(slot.at_s for slot in record.slots if slot.completed_rate)


def is_equal(workload: Workload, found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    """Return whether the results are the oracle's, each once."""
    read = [{**row, workload.time: datetime.fromisoformat(row[workload.time])} for row in found]
    if workload.ordered:
        return read == wanted
    return sorted(map(_text, read)) == sorted(map(_text, wanted))


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, default=lambda at: at.timestamp())
