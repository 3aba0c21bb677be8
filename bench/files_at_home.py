"""CPU of the gateway's process for each event of files, by value and by reference: python bench/files_at_home.py.

One engine host on one core reads nothing else. The CPU of a file with one event, which is that of starting and
stopping, is taken off. Results are counted.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.e2e.harness import Gateway, end_hosts, rows_in

EVENTS, ROUNDS = 400_000, 2
SQL = {
    "1 in 100": "SELECT id, upper(text) AS text FROM events WHERE id % 100 = 0",
    "all": "SELECT id, upper(text) AS text FROM events",
}


def _write(path: Path, events: int) -> None:
    rows = [{"id": at, "text": f"event {at}", "price": at / 7, "ok": at % 3 == 0} for at in range(events)]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=100_000)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def play(folder: Path, state: Path, source: Path, sql: str, path: str) -> tuple[float, float, int]:
    """Return the CPU of the gateway's process (s), how long it ran (s), and how many results there are."""
    folder.mkdir()
    query: dict[str, Any] = {
        "source": {"type": "file", "path": str(source)},
        "schema": "id BIGINT, text STRING, price DOUBLE, ok BOOLEAN",
        "sql": sql,
        "sink": {"type": "file", "path": str(folder / "out")},
        "qos": {"latency": "60s"},
    }
    gateway = Gateway(folder, state, {folder.name: query}, {"max_vms": 0}, private={"data_path": path})
    began_s = time.monotonic()
    gateway.start("--until-drained")
    assert gateway.process is not None
    _, code, used = os.wait4(gateway.process.pid, 0)
    gateway.process.returncode = os.waitstatus_to_exitcode(code)
    assert gateway.process.returncode == 0, gateway.tail()
    return used.ru_utime + used.ru_stime, time.monotonic() - began_s, len(rows_in(folder / "out"))


def main() -> None:
    """Print a line for each format, query and path, and each round."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder, state, number = Path(name), Path(name) / "state", 0
        try:
            for kind in ("jsonl", "parquet"):
                one, many = folder / f"one.{kind}", folder / f"many.{kind}"
                _write(one, 1)
                _write(many, EVENTS)
                for _ in range(ROUNDS):
                    for what, sql in SQL.items():
                        for path in ("gateway", "reference"):
                            found = []
                            for source in (one, one, many):  # the first one opens the query
                                number += 1
                                found.append(play(folder / f"q{number}", state, source, sql, path))
                            (_, (idle_s, before_s, _), (cpu_s, took_s, results)) = found
                            each_us = (cpu_s - idle_s) / EVENTS * 1e6
                            rate = EVENTS / (took_s - before_s)
                            print(f"{kind}, {what}, {path}: {each_us:.2f} us, {rate:,.0f} events/s, {results} results")
                            sys.stdout.flush()
        finally:
            end_hosts(state)


if __name__ == "__main__":
    main()
