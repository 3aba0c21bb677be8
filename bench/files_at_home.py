"""CPU of the gateway's process for each event of files, by value and by reference.

``python bench/files_at_home.py 1000000 2000 jsonl parquet``: so many events, so many in a run, and the formats.

One engine host has one core. The CPU of a file with one event, which is that of starting and
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


def play(folder: Path, state: Path, source: Path, sql: str, path: str, run_events: int) -> tuple[float, float, int]:
    """Return the CPU of the gateway's process (s), how long it ran (s), and how many results there are."""
    folder.mkdir()
    query: dict[str, Any] = {
        "source": {"type": "file", "path": str(source)},
        "schema": "id BIGINT, text STRING, price DOUBLE, ok BOOLEAN",
        "sql": sql,
        "sink": {"type": "file", "path": str(folder / "out")},
        "runs": {"max_events": run_events, "max_bytes": "16MiB"},
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
    """Print a line for each format, query and path."""
    events, run_events, kinds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder, state, number = Path(name), Path(name) / "state", 0
        try:
            for kind in kinds:
                one, many = folder / f"one.{kind}", folder / f"many.{kind}"
                _write(one, 1)
                _write(many, events)
                for what, sql in SQL.items():
                    for path in ("gateway", "reference"):
                        found = []
                        for source in (many, one, many):  # the first one warms up
                            number += 1
                            found.append(play(folder / f"q{number}", state, source, sql, path, run_events))
                        (_, (idle_s, before_s, _), (cpu_s, took_s, results)) = found
                        each_us, rate = (cpu_s - idle_s) / events * 1e6, events / (took_s - before_s)
                        print(f"{kind}, {what}, {path}: {each_us:.2f} us, {rate:,.0f} events/s, {results} results")
                        sys.stdout.flush()
        finally:
            end_hosts(state)


if __name__ == "__main__":
    main()
