"""A query or its source is changed and keeps its state, with real engines: nothing is lost or repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from gateway.query.identity import Identity, read_identity
from tests.e2e.harness import Gateway, until

EVENTS, KEPT_S = 4000, 600


def write(path: Path, ids: range) -> Path:
    """Events a second apart."""
    lines = (json.dumps({"id": i, "sent": f"2026-01-01T{i // 3600:02}:{i // 60 % 60:02}:{i % 60:02}Z"}) for i in ids)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def gateway(folder: Path, state_dir: Path, name: str, path: Path, sql: str, **more: Any) -> Gateway:
    replay = more.pop("replay", None)
    query = {
        "source": {"type": "file", "path": str(path), **({"replay": replay} if replay else {})},
        "schema": "id BIGINT, sent TIMESTAMP",
        "sql": sql,
        "sink": {"type": "file", "path": str(folder / "out" / name)},
        "qos": {"latency": "1s"},
        "switching": {"mode": "off"},
        **more,
    }
    return Gateway(folder, state_dir, {name: query})


def identity(state_dir: Path, name: str) -> Identity:
    found = read_identity(state_dir / "queries" / name)
    assert found is not None
    return found


def test_a_changed_where_goes_on_at_the_next_event_after_a_kill_and_then_a_new_path(
    tmp_path: Path, state_dir: Path
) -> None:
    path = write(tmp_path / "in.jsonl", range(EVENTS))
    old = "SELECT id, 'old' AS by FROM events WHERE id % 2 = 0"
    new = "SELECT id, 'new' AS by FROM events WHERE id % 3 = 0"
    replay = {"rate": "1000/s"}
    first = gateway(tmp_path, state_dir, "changed", path, old, replay=replay)
    first.start()
    until(lambda: len(first.rows("changed")) > 100, "the first results")
    first.kill()
    second = gateway(tmp_path, state_dir, "changed", path, new, replay=replay)
    second.run_until_drained()
    border = identity(state_dir, "changed").begin_seq
    assert 200 < border < EVENTS, "the kill came while events were read"
    expected = [{"id": i, "by": "old"} for i in range(0, border, 2)]
    expected += [{"id": i, "by": "new"} for i in range(border, EVENTS) if i % 3 == 0]
    assert second.rows("changed") == expected

    third = gateway(tmp_path, state_dir, "changed", write(tmp_path / "new.jsonl", range(3000)), new)
    third.run_until_drained()
    assert third.rows("changed") == [*expected, *({"id": i, "by": "new"} for i in range(0, 3000, 3))]
    assert "its state is from" in third.tail()


def test_a_stateful_query_gives_its_state_up_only_if_told(tmp_path: Path, state_dir: Path) -> None:
    minutes = (
        "SELECT window(sent, '1 minute').start AS minute, count(*) AS n, '{}' AS by FROM events "
        "GROUP BY window(sent, '1 minute')"
    )
    timed: dict[str, Any] = {"event_time": {"column": "sent", "lateness": "0s"}}
    path = write(tmp_path / "in.jsonl", range(KEPT_S))
    first = gateway(tmp_path, state_dir, "counted", path, minutes.format("old"), **timed)
    first.run_until_drained()
    before = first.rows("counted")
    still_open = KEPT_S // 60 - len(before)
    assert (first.totals()["open_groups"], first.totals()["too_late"]) == (still_open, 0)
    assert f"query counted: {still_open} groups are still open in its state" in first.tail()

    less_late = {"event_time": {"column": "sent", "lateness": "1s"}}
    refused = gateway(tmp_path, state_dir, "counted", path, minutes.format("old"), **less_late)
    refused.start("--until-drained")
    assert refused.wait() != 0
    assert "new_epoch: true" in refused.tail()

    write(path, range(2 * KEPT_S))
    said: dict[str, Any] = {**timed, "new_epoch": True, "runs": {"max_events": 100}}
    told = gateway(tmp_path, state_dir, "counted", path, minutes.format("new"), **said)
    told.run_until_drained()
    assert identity(state_dir, "counted").begin_seq == KEPT_S
    rows = told.rows("counted")
    assert rows[: len(before)] == before, "what was delivered stays"
    since = [row for row in rows[len(before) :] if row["by"] == "new"]
    assert rows[len(before) :] == since, "the old state is gone, and with it its open windows"
    assert since
    assert {row["n"] for row in since} == {60}
    assert sorted(row["minute"][14:16] for row in since) == [f"{10 + i:02}" for i in range(len(since))]

    later = write(tmp_path / "later.jsonl", range(2 * KEPT_S, 3 * KEPT_S))
    gateway(tmp_path, state_dir, "counted", later, minutes.format("new"), **said).run_until_drained()
    minutes_said = [row["minute"] for row in told.rows("counted")]
    assert len(minutes_said) == len(set(minutes_said)) > len(rows), "another source went on with the state"
    assert {row["n"] for row in told.rows("counted")} == {60}
    assert msgspec.json.decode((state_dir / "queries/counted/query.json").read_bytes())["state"] == 1

    write(later, range(2 * KEPT_S, 4 * KEPT_S))
    elsewhere = {"type": "file", "path": str(tmp_path / "out" / "elsewhere")}
    moved = gateway(tmp_path, state_dir, "counted", later, minutes.format("new"), **said, sink=elsewhere)
    moved.run_until_drained()
    assert f"its sink is new: it gets the results from seq {3 * KEPT_S} on" in moved.tail()
    minutes_there = [row["minute"] for row in moved.rows("elsewhere")]
    assert minutes_there
    assert set(minutes_there).isdisjoint(minutes_said), "the state went on, and nothing is delivered again"
    assert {row["n"] for row in moved.rows("elsewhere")} == {60}
