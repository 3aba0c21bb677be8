"""Each operator of Table I over home and VMs: what one looks for by hand, once and in order, whatever is killed."""

from __future__ import annotations

import json
import os
import random
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.e2e.harness import EAGER, Gateway, until
from tests.selections.patternoracle import Case, Event, Found, Step, matches, plain

EVENTS = 1_400


def is_kind(name: str, times: str = "one") -> Step:
    return Step(name, f"kind = '{name}'", lambda event, _: event["kind"] == name, times)


def is_higher(event: Event, found: Found) -> bool:
    return bool(event["kind"] == "b" and event["v"] > found["a"]["v"])


A, B, C = map(is_kind, "abc")
HIGHER = Step("b", "kind = 'b' AND v > a.v", is_higher)
CASES = {
    "sequence": Case("sequence", (A, HIGHER, is_kind("d", "none"), is_kind("c", "many")), within_ms=4_000),
    "conjunction": Case("conjunction", (A, B, C), within_ms=2_000),
    "disjunction": Case("disjunction", (A, C)),
    "aperiodic": Case("aperiodic", (A, is_kind("b", "many"), C), within_ms=4_000, closes=C.meets),
    "periodic": Case("periodic", (A, C), within_ms=4_000, every_ms=500, closes=C.meets),
}


def stream() -> list[dict[str, Any]]:
    """Return events of four kinds, 100 to 400 ms apart, a few of them late."""
    chance, now_ms, events = random.Random(19), 1_700_000_000_000, []
    for n in range(EVENTS):
        now_ms += chance.randint(100, 400)
        late_ms = chance.choice((0, 0, 0, 0, 900))
        events.append({"n": n, "kind": chance.choice("abcd"), "v": chance.randint(0, 9), "ms": now_ms - late_ms})
    return events


def pattern_of(case: Case) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"name": step.name, "when": step.sql} for step in case.steps]
    said: dict[str, Any] = {"time": "at"}
    if case.within_ms:
        said["within"] = f"{case.within_ms}ms"
    match case.operator:
        case "sequence":
            said["sequence"] = [{**each, "times": step.times} for each, step in zip(steps, case.steps, strict=True)]
        case "aperiodic":
            said["aperiodic"] = dict(zip(("from", "each", "until"), steps, strict=True))
        case "periodic":
            said["periodic"] = {"from": steps[0], "every": f"{case.every_ms}ms", "until": steps[1]}
        case other:
            said[other] = steps
    return said


def query(folder: Path, name: str) -> dict[str, Any]:
    return {
        "source": {"type": "file", "path": str(folder / "events.jsonl"), "replay": {"rate": "60/s"}},
        "schema": "n BIGINT, kind STRING, v INT, at TIMESTAMP",
        "pattern": pattern_of(CASES[name.removeprefix("pattern-")]),
        "runs": {"max_events": 100},
        "sink": {"type": "file", "path": str(folder / "out" / name)},
        "qos": {"latency": "1s"},
        "switching": EAGER,
    }


def query_over_matches(folder: Path) -> dict[str, Any]:
    """Return a query that reads the matches of another one."""
    return {
        "source": {"type": "query", "name": "pattern-aperiodic"},
        "schema": "occurrence BIGINT, b STRUCT<n: BIGINT>",
        "sql": "SELECT b.n AS n, occurrence FROM events WHERE occurrence > 1",
        "sink": {"type": "file", "path": str(folder / "out" / "over-matches")},
        "qos": {"latency": "1s"},
    }


def wanted(case: Case) -> list[dict[str, Any]]:
    found = matches(case, stream())
    for each in found:
        if "due_ms" in each:
            due = datetime.fromtimestamp(each.pop("due_ms") / 1e3, UTC)
            each["due"] = due.isoformat(timespec="milliseconds")
    return [{name: plain(value) for name, value in each.items()} for each in found]


def got(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for each in rows:
        if "due" in each:
            each["due"] = datetime.fromisoformat(each["due"]).isoformat(timespec="milliseconds")
    return [{name: plain(value) for name, value in each.items() if name != "selection"} for each in rows]


def test_patterns_are_exact_over_two_sites_whatever_is_killed(tmp_path: Path, state_dir: Path) -> None:
    with (tmp_path / "events.jsonl").open("w") as file:
        for event in stream():
            at = datetime.fromtimestamp(event["ms"] / 1e3, UTC).isoformat(timespec="milliseconds")
            file.write(json.dumps({**event, "at": at}) + "\n")
    names = [f"pattern-{each}" for each in CASES]
    queries = {name: query(tmp_path, name) for name in names}
    gateway = Gateway(tmp_path, state_dir, {**queries, "over-matches": query_over_matches(tmp_path)})
    gateway.start("--until-drained")

    def all_have_more(than: dict[str, int]) -> bool:
        return all(len(gateway.parts(name)) > than[name] for name in names)

    def until_more(what: str) -> None:
        seen = {name: len(gateway.parts(name)) for name in names}
        until(lambda: all_have_more(seen), f"{what}: each query has one more part")

    until(lambda: "% to vm-" in gateway.log.read_text() and bool(gateway.vm_pids()), "events go to the VM")
    os.kill(gateway.vm_pids()[0], signal.SIGKILL)
    until_more("after the VM")
    os.kill(gateway.home_pid(), signal.SIGKILL)
    until_more("after home")
    gateway.kill()
    gateway.run_until_drained()
    for name in names:
        case = CASES[name.removeprefix("pattern-")]
        assert got(gateway.rows(name)) == wanted(case), name
    each = [(row["b"], row["occurrence"]) for row in wanted(CASES["aperiodic"])]
    assert [(row["n"], row["occurrence"]) for row in gateway.rows("over-matches")] == [
        (n, occurrence) for n, occurrence in each if occurrence > 1
    ]
    assert gateway.vm_pids() == []
