"""Rows that make a stateful query fail become poison, and the state is as if they had never come."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engines.streaming.checkpoints import ResumePoint
from tests.e2e.harness import until
from tests.engines.stream_bench import DEADLINE_S, Bench, Running

pytestmark = pytest.mark.spark

USER = str(Path(__file__).parent / "user")
BEGIN = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
SUMMED = "at TIMESTAMP, name STRING, text STRING"
PURSES = "id INT, name STRING, amount INT"


def opened(bench: Bench, folder: Path, function: str, schema: str, **spec: Any) -> Running:
    return bench.open(
        function=f"user_functions:{function}", code_path=USER, schema=schema, checkpoint_dir=str(folder), **spec
    )


def put_runs(running: Running, rows: list[dict[str, Any]], length: int) -> None:
    for seq in range(running.stream.progress.resume_seq, len(rows), length):
        running.put_seqs(seq, rows[seq : seq + length])


def poison(running: Running) -> dict[int, str]:
    """Return the seq of each row at fault, and the reason."""
    return {
        answer.items[0].start + bad.row: bad.reason for answer in running.collected.answers for bad in answer.poison
    }


def test_texts_that_are_no_numbers_are_left_out_of_windowed_sums(bench: Bench, tmp_path: Path) -> None:
    chance = random.Random(7)  # no secret
    count, bad = 160, {45, 46, 78, 105, 159}
    rows: list[dict[str, Any]] = [
        {
            "at": BEGIN + dt.timedelta(seconds=number // 4),
            "name": f"n{number % 3}",
            "text": "no number" if number in bad else str(chance.randrange(100)),
        }
        for number in range(count)
    ]
    rows[46]["at"] += dt.timedelta(days=30)  # if it moved the watermark, all later rows would be too late
    expected: Counter[tuple[dt.datetime, str]] = Counter()
    for number, row in enumerate(rows):
        if number not in bad:
            expected[row["at"].replace(second=row["at"].second // 10 * 10), row["name"]] += int(row["text"])

    running = opened(bench, tmp_path, "summed", SUMMED, max_batch_runs=4)
    put_runs(running, rows, 20)
    for day in range(2):
        running.rows_until(count + day)
        running.put_seqs(count + day, [{"at": BEGIN + dt.timedelta(days=1 + day), "name": "end", "text": "0"}])
    found = [row for row in running.rows_until(count + 2) if row["name"] != "end"]
    assert {(row["start"], row["name"]): row["total"] for row in found} == expected
    assert len(found) == len(expected), "no window came twice"
    said = poison(running)
    assert set(said) == bad
    assert all("CAST_INVALID_INPUT" in reason for reason in said.values())


def test_rows_that_fail_over_what_the_state_holds_are_found_also_when_the_search_is_cut_off(
    bench: Bench, tmp_path: Path
) -> None:
    amounts = {"n0": [9, 1, -11, -10], "n1": [4, 2, -5, -2]}
    rows: list[dict[str, Any]] = [
        {"id": 2 * turn + each, "name": name, "amount": amounts[name][turn]}
        for turn in range(4)
        for each, name in enumerate(amounts)
    ]
    held: Counter[str] = Counter()
    owing = []
    for row in rows:
        if held[row["name"]] + row["amount"] < 0:
            owing.append(row["id"])
        else:
            held[row["name"]] += row["amount"]
    assert owing == [4, 7], "4 over the state, 7 over the state and a row of the run before"

    other = bench.open("SELECT id FROM events")
    # The first run, of good rows, is committed; then come two runs in one micro-batch.
    cut = opened(bench, tmp_path, "purses", PURSES, max_batch_runs=2, commits=False)
    cut.put_seqs(0, rows[:4])
    cut.collected.wait(1)
    cut.put_seqs(4, rows[4:6])
    cut.put_seqs(6, rows[6:])
    cut.stream.committed(3)
    until(lambda: any(tmp_path.glob("copying-*-*")), "rows are tried over a copy of the state")
    other.put("good", [{"id": 7, "name": ""}])
    assert other.results(1) == {"good": [{"id": 7}]}
    assert len(cut.collected.answers) == 1, "the other query did not wait for the search"
    cut.stream.close()
    assert len(cut.collected.answers) == 1
    assert not cut.collected.deaths
    assert not list(tmp_path.glob("copying-*-*"))

    running = opened(bench, tmp_path, "purses", PURSES, max_batch_runs=2)
    assert running.stream.progress == ResumePoint(4, 8)
    put_runs(running, rows, 2)
    found = running.rows_until(8)
    assert sorted(found, key=lambda row: str(row["name"])) == [{"name": "n0", "total": 0}, {"name": "n1", "total": 1}]
    assert held == {"n0": 0, "n1": 1}
    assert running.limits() == [(4, 8)]
    assert running.isolating == [(4, 6), (6, 8)]
    assert poison(running) == {4: "ValueError: n0 owes 1", 7: "ValueError: n1 owes 1"}


def test_an_event_that_fails_only_with_the_one_that_it_meets_is_found(bench: Bench, tmp_path: Path) -> None:
    def event(kind: str, name: str, text: str, second: int) -> dict[str, Any]:
        return {"kind": kind, "name": name, "text": text, "at": BEGIN + dt.timedelta(seconds=second)}

    asked = [event("ask", f"n{number}", str(number), number) for number in range(4)]
    answered = [event("answer", f"n{number}", "x" if number == 1 else "7", 100 + number) for number in range(4)]
    running = opened(bench, tmp_path, "pairs", "kind STRING, name STRING, text STRING, at TIMESTAMP", max_batch_runs=1)
    running.put_seqs(0, asked)
    running.rows_until(4)
    running.put_seqs(4, answered)
    found = {row["name"]: row["number"] for row in running.rows_until(8)}
    assert found == {"n0": 7, "n2": 27, "n3": 37}
    assert set(poison(running)) == {5}


def test_a_query_of_which_too_many_rows_fail_is_broken(bench: Bench, tmp_path: Path) -> None:
    running = opened(bench, tmp_path, "summed", SUMMED, max_batch_runs=1, bad_rows_most=5)
    running.put_seqs(0, [{"at": BEGIN, "name": "n", "text": "x"} for _ in range(20)])
    assert running.told_broken.wait(DEADLINE_S)
    assert "more than 5 of 1,000 rows fail" in running.broken[0]
    assert running.stream.death == running.broken[0]
    assert not running.collected.answers


def test_a_search_that_takes_too_long_ends_the_query(bench: Bench, tmp_path: Path) -> None:
    running = opened(bench, tmp_path, "purses", PURSES, max_batch_runs=1, run_s=0.0)
    running.put_seqs(0, [{"id": 0, "name": "n", "amount": -1}])
    assert running.told_broken.wait(DEADLINE_S)
    assert "isolating the rows of the events 0 to 0 that fail took more than 0 s" in running.broken[0]
    assert not running.collected.answers
