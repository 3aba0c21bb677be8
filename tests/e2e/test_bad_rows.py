"""Only the rows that fail their query become dead letters, at any speed, and no VM is launched for them."""

from __future__ import annotations

import json
import random
import signal
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Gateway, until

ROWS = 2000
BAD = set(random.Random(14).sample(range(ROWS), 20))
GOAL_S = 10.0


def query(folder: Path, name: str, **replay: Any) -> dict[str, Any]:
    source: dict[str, Any] = {"type": "file", "path": str(folder / "in.jsonl")}
    return {
        "source": {**source, "replay": replay} if replay else source,
        "schema": "id INT, v STRING",
        "sql": "SELECT id, CAST(v AS INT) AS n FROM events",
        "sink": {"type": "file", "path": str(folder / "out" / name)},
        "qos": {"latency": "20s"},
    }


def test_twenty_bad_rows_of_two_thousand_are_the_only_dead_letters_at_any_speed(
    tmp_path: Path, state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": row, "v": f"x{row}" if row in BAD else str(row)} for row in range(ROWS)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = {
        "bad-at-once": query(tmp_path, "bad-at-once"),
        "bad-replayed": query(tmp_path, "bad-replayed", rate="500/s"),
    }
    gateway = Gateway(tmp_path, state_dir, queries)
    gateway.run_until_drained()
    delivered = next(line for line in gateway.tail().splitlines() if "query bad-at-once: 2,000 events (" in line)
    with capsys.disabled():
        print(f"\n{delivered} (goal: {GOAL_S:g} s)")
    for name in queries:
        assert gateway.rows(name) == [{"id": row, "n": row} for row in range(ROWS) if row not in BAD]
        path = state_dir / "queries" / name / "dead-letters.jsonl"
        letters = [json.loads(line) for line in path.read_text().splitlines()]
        assert {letter["seq"] for letter in letters} == BAD
        assert len(letters) == len(BAD)
        for letter in letters:
            assert json.loads(letter["raw"]) == rows[letter["seq"]]
            assert f"'x{letter['seq']}'" in letter["reason"]
        assert f"{name}: " in gateway.log.read_text()
    assert gateway.log.read_text().count("20 dead letters") == len(queries)
    totals = gateway.totals()
    assert totals["dead_letters"] == len(BAD)
    assert totals["vms"]["started"] == 0


ONCE = """
def once(events):
    return events.selectExpr("id", "CAST(v AS INT) AS n").dropDuplicates(["id"])
"""


def test_bad_rows_of_a_query_with_state_are_dead_letters_once_whenever_its_gateway_is_killed(
    tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each row comes twice, far apart: the query remembers all good ones.
    rows = [{"id": row, "v": f"x{row}" if row in BAD else str(row)} for row in range(ROWS // 2)] * 2
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "remembering.py").write_text(ONCE)
    once = query(tmp_path, "once") | {"function": "remembering:once"}
    del once["sql"]
    gateway = Gateway(tmp_path, state_dir, {"once": once})
    gateway.start()
    checkpoints = state_dir / "queries" / "once" / "checkpoints"
    until(lambda: any(checkpoints.glob("copying-*-*")), "rows are tried over a copy of the state")
    gateway.kill()
    monkeypatch.setenv("SPILLWAY_FAILPOINTS", "deadletters.append.after=kill@1")
    gateway.start()
    assert gateway.wait() == -signal.SIGKILL
    monkeypatch.delenv("SPILLWAY_FAILPOINTS")
    gateway.run_until_drained()
    good = [{"id": row, "n": row} for row in range(ROWS // 2) if row not in BAD]
    assert sorted(gateway.rows("once"), key=itemgetter("id")) == good
    letters = (state_dir / "queries" / "once" / "dead-letters.jsonl").read_text().splitlines()
    assert [json.loads(letter)["seq"] for letter in letters] == [
        seq for seq, row in enumerate(rows) if row["id"] in BAD
    ]
    assert gateway.totals()["vms"]["started"] == 0
