"""Rows that make a stateful query fail become poison, and the state is as if they had never come."""

from __future__ import annotations

import datetime as dt
import random
import time
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
PAIRS = "kind STRING, name STRING, text STRING, at TIMESTAMP"
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


def test_a_python_function_that_fails_over_what_its_state_holds(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"id": number, "name": name, "amount": amount}
        for number, (name, amount) in enumerate([("n0", 10), ("n1", 5), ("n1", -5), ("n0", -11), ("n0", -10)])
    ]
    running = opened(bench, tmp_path, "purses", PURSES, max_batch_runs=1)
    running.put_seqs(0, rows[:2])
    running.put_seqs(2, rows[2:4])
    until(lambda: bool(running.isolating), "the search begins")
    began_s = time.monotonic()
    running.rows_until(4)
    with capsys.disabled():
        print(f"\nfour tries took {time.monotonic() - began_s:.1f} s")
    running.put_seqs(4, rows[4:])
    found = [(row["name"], row["total"]) for row in running.rows_until(5)]
    assert sorted(found) == [("n0", 0), ("n0", 10), ("n1", 0), ("n1", 5)]
    assert poison(running) == {3: "ValueError: n0 owes 1"}


def test_events_that_fail_only_with_those_they_meet_are_found_also_when_the_search_is_cut_off(
    bench: Bench, tmp_path: Path
) -> None:
    def event(kind: str, name: str, text: str, second: int) -> dict[str, Any]:
        return {"kind": kind, "name": name, "text": text, "at": BEGIN + dt.timedelta(seconds=second)}

    rows = [event("ask", f"n{number}", str(number), number) for number in range(4)]
    rows += [event("answer", f"n{number}", "7" if number % 2 else "x", 100 + number) for number in range(4)]

    other = bench.open("SELECT name FROM events", schema=PAIRS)
    cut = opened(bench, tmp_path, "pairs", PAIRS, max_batch_runs=2, commits=False)
    cut.put_seqs(0, rows[:4])
    cut.collected.wait(1)
    cut.put_seqs(4, rows[4:6])
    cut.put_seqs(6, rows[6:])
    cut.stream.committed(3)  # so two runs are in the next micro-batch
    until(lambda: any(tmp_path.glob("copying-*-*")), "rows are tried over a copy of the state")
    other.put("good", rows[:1])
    assert other.results(1) == {"good": [{"name": "n0"}]}
    assert len(cut.collected.answers) == 1, "the other query did not wait for the search"
    cut.stream.close()
    assert len(cut.collected.answers) == 1
    assert not cut.collected.deaths
    assert not list(tmp_path.glob("copying-*-*"))

    running = opened(bench, tmp_path, "pairs", PAIRS, max_batch_runs=2)
    assert running.stream.progress == ResumePoint(4, 8)
    put_runs(running, rows, 2)
    assert {row["name"]: row["number"] for row in running.rows_until(8)} == {"n1": 17, "n3": 37}
    assert running.limits() == [(4, 8)]
    assert running.isolating == [(4, 6), (6, 8)]
    assert set(poison(running)) == {4, 6}


def test_a_query_of_which_too_many_rows_fail_is_broken(bench: Bench, tmp_path: Path) -> None:
    running = opened(bench, tmp_path, "summed", SUMMED, max_batch_runs=1, bad_rows_most=5)
    running.put_seqs(0, [{"at": BEGIN, "name": "n", "text": "x"} for _ in range(20)])
    assert running.told_broken.wait(DEADLINE_S)
    assert "more than 5 of 1,000 rows fail" in running.broken[0]
    assert running.stream.death == running.broken[0]
    assert not running.collected.answers


def test_a_stateful_query_that_exhausts_the_memory_of_a_host_that_it_shares_ends_there_unjudged(
    bench: Bench, tmp_path: Path
) -> None:
    running = opened(bench, tmp_path, "summed", SUMMED, max_batch_runs=1, shares_host=True)
    running.put_seqs(0, [{"at": BEGIN, "name": "n", "text": "java.lang.OutOfMemoryError"}])
    assert running.told_broken.wait(DEADLINE_S)
    assert "it needed more memory than the engine host has" in running.exhausted[0]
    assert (running.isolating, running.broken, running.collected.answers) == ([], [], [])


def test_a_search_that_takes_too_long_ends_the_query(bench: Bench, tmp_path: Path) -> None:
    running = opened(bench, tmp_path, "summed", SUMMED, max_batch_runs=1, run_s=0.0)
    running.put_seqs(0, [{"at": BEGIN, "name": "n", "text": "x"}])
    assert running.told_broken.wait(DEADLINE_S)
    assert "isolating the rows of the events 0 to 0 that fail took more than 0 s" in running.broken[0]
    assert not running.collected.answers
