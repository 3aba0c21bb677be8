"""Rows that make a stateful query fail become poison, and the state is as if they had never come."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.engines.stream_bench import Bench, Running

pytestmark = pytest.mark.spark

USER = str(Path(__file__).parent / "user")
BEGIN = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


def opened(bench: Bench, folder: Path, function: str, schema: str, **spec: Any) -> Running:
    return bench.open(
        function=f"user_functions:{function}", code_path=USER, schema=schema, checkpoint_dir=str(folder), **spec
    )


def poison(running: Running) -> dict[int, str]:
    """Return the seq of each row at fault, and the reason."""
    return {
        answer.items[0].start + bad.row: bad.reason for answer in running.collected.answers for bad in answer.poison
    }


def test_texts_that_are_no_numbers_are_left_out_of_windowed_sums(bench: Bench, tmp_path: Path) -> None:
    chance = random.Random(7)  # no secret
    count, bad = 400, {3, 77, 78, 205, 399}
    rows = [
        {
            "at": BEGIN + dt.timedelta(seconds=number // 4),
            "name": f"n{number % 3}",
            "text": "no number" if number in bad else str(chance.randrange(100)),
        }
        for number in range(count)
    ]
    expected: Counter[tuple[dt.datetime, str]] = Counter()
    for number, row in enumerate(rows):
        if number not in bad:
            expected[row["at"].replace(second=row["at"].second // 10 * 10), row["name"]] += int(row["text"])

    running = opened(bench, tmp_path, "summed", "at TIMESTAMP, name STRING, text STRING", max_batch_runs=4)
    for seq in range(0, count, 50):
        running.put_seqs(seq, rows[seq : seq + 50])
    ends = [{"at": BEGIN + dt.timedelta(days=1 + day), "name": "end", "text": "0"} for day in range(3)]
    for number, row in enumerate(ends):
        running.rows_until(count + number)
        running.put_seqs(count + number, [row])
    found = [row for row in running.rows_until(count + 3) if row["name"] != "end"]
    assert {(row["start"], row["name"]): row["total"] for row in found} == expected
    assert len(found) == len(expected), "no window came twice"
    said = poison(running)
    assert set(said) == bad
    assert all("CAST_INVALID_INPUT" in reason for reason in said.values())


def test_a_row_that_fails_only_over_what_the_state_holds_is_found(bench: Bench, tmp_path: Path) -> None:
    chance = random.Random(8)  # no secret
    rows = [{"id": number, "name": f"n{number % 2}", "amount": chance.choice([5, 3, 2, -1])} for number in range(120)]
    rows[60]["amount"] = rows[97]["amount"] = -1000
    held: Counter[str] = Counter()
    expected_poison = []
    for row in rows:
        if held[row["name"]] + row["amount"] < 0:
            expected_poison.append(row["id"])
        else:
            held[row["name"]] += row["amount"]
    assert {60, 97} <= set(expected_poison)

    running = opened(bench, tmp_path, "purses", "id INT, name STRING, amount INT", max_batch_runs=2)
    for seq in range(0, 120, 20):
        running.put_seqs(seq, rows[seq : seq + 20])
    found = {row["name"]: row["total"] for row in running.rows_until(120)}
    assert found == held
    said = poison(running)
    assert sorted(said) == expected_poison
    assert all(" owes " in reason for reason in said.values())


def test_an_event_that_fails_only_with_the_one_that_it_meets_is_found(bench: Bench, tmp_path: Path) -> None:
    def event(kind: str, name: str, text: str, second: int) -> dict[str, Any]:
        return {"kind": kind, "name": name, "text": text, "at": BEGIN + dt.timedelta(seconds=second)}

    asked = [event("ask", f"n{number}", str(number), number) for number in range(20)]
    answered = [
        event("answer", f"n{number}", "no number" if number in {4, 11} else "7", 100 + number) for number in range(20)
    ]
    running = opened(bench, tmp_path, "pairs", "kind STRING, name STRING, text STRING, at TIMESTAMP", max_batch_runs=1)
    running.put_seqs(0, asked)
    running.rows_until(20)
    running.put_seqs(20, answered)
    found = {row["name"]: row["number"] for row in running.rows_until(40)}
    assert found == {f"n{number}": int(f"{number}7") for number in range(20) if number not in {4, 11}}
    assert set(poison(running)) == {24, 31}


def test_a_query_of_which_too_many_rows_fail_is_broken(bench: Bench, tmp_path: Path) -> None:
    running = opened(
        bench, tmp_path, "summed", "at TIMESTAMP, name STRING, text STRING", max_batch_runs=1, bad_rows_most=5
    )
    running.put_seqs(0, [{"at": BEGIN, "name": "n", "text": "x"} for _ in range(20)])
    assert "more than 5 of 1,000 rows fail" in running.collected.wait_for_death()
    assert running.stream.death
