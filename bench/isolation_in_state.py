"""The cost of finding rows of 2,000 that make a stateful query fail over what its state holds (docs/decisions/0095).

Run: python bench/isolation_in_state.py [BAD ...]
"""

from __future__ import annotations

import datetime as dt
import queue
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from engines.isolation.search import rows_at_fault
from engines.query.known import understand
from engines.spark.session import build_session, stop_session
from engines.stateful import StatefulStream
from engines.streaming.feed import FeedServer, pack
from infra.clock import SystemClock
from infra.messages import OpenQuery

ROWS = 2000
USER = str(Path(__file__).parents[1] / "tests" / "engines" / "user")
BEGIN = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
Row = dict[str, Any]


def question(row: int) -> Row:
    """Return the first event of a pair."""
    return {"kind": "ask", "name": f"n{row}", "text": str(row), "at": BEGIN}


def answer(row: int, bad: bool) -> Row:
    """Return the second, which fails only where it meets the first."""
    return {"kind": "answer", "name": f"n{row}", "text": "x" if bad else "7", "at": BEGIN}


def gift(row: int) -> Row:
    """Return a row that fills a purse."""
    return {"id": row, "name": f"n{row % 10}", "amount": 10}


def purchase(row: int, bad: bool) -> Row:
    """Return a row that empties it, or takes more than there is."""
    return {"id": ROWS + row, "name": f"n{row % 10}", "amount": -100_000 if bad else -1}


QUERIES: dict[str, tuple[str, str, Callable[[int], Row], Callable[[int, bool], Row]]] = {
    "join (SQL)": ("pairs", "kind STRING, name STRING, text STRING, at TIMESTAMP", question, answer),
    "Python": ("purses", "id INT, name STRING, amount INT", gift, purchase),
}


def tries_for(bad: set[int]) -> int:
    """Return how many tries find these rows."""
    tried: list[int] = []

    def try_rows(rows: Sequence[int]) -> str:
        tried.append(len(rows))
        return "bad" if bad & set(rows) else ""

    rows_at_fault(ROWS, try_rows, {})
    return len(tried)


def searched_s(session: Any, server: FeedServer, kind: str, bad: set[int]) -> float:
    """Return how long a micro-batch of 2,000 rows takes, over the state of as many, from its failure to its answer."""
    function, schema, before, after = QUERIES[kind]
    spec = OpenQuery(
        query="q",
        epoch=1,
        schema_ddl=schema,
        function=f"user_functions:{function}",
        code_path=USER,
        checkpoint_dir=tempfile.mkdtemp(),
        max_batch_runs=1,
    )
    query = understand(session, spec)
    answers: queue.Queue[Any] = queue.Queue()
    failed_s: list[float] = []
    stream = StatefulStream(
        query, server, SystemClock(), answers.put, answers.put, lambda _: failed_s.append(time.perf_counter())
    )
    stream.open()
    for first, rows in (
        (0, [before(row) for row in range(ROWS)]),
        (ROWS, [after(row, row in bad) for row in range(ROWS)]),
    ):
        stream.put(pack(pa.RecordBatch.from_pylist(rows, query.input_schema)), None, first, first + ROWS)
        (outcome,) = answers.get()
        stream.committed(first + ROWS - 1)
    took_s = time.perf_counter() - failed_s[0]
    assert {each.row for each in outcome.poison} == bad
    stream.close()
    return took_s


def main(bads: Sequence[int]) -> None:
    """Print seconds for each query and number of bad rows."""
    session = build_session("local[1]", Path(tempfile.mkdtemp()), 1)
    session.sparkContext.setLogLevel("OFF")
    server = FeedServer()
    for kind in QUERIES:
        for count in bads:
            bad = set(random.Random(count).sample(range(ROWS), count))
            took_s, tries = searched_s(session, server, kind, bad), tries_for(bad)
            print(f"{kind:12}{count:4} bad {tries:5} tries {took_s:8.1f} s {took_s / tries:8.2f} s each", flush=True)
    server.close()
    stop_session(session)


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [1, 3])
