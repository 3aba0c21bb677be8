"""Events of files that stay at home are read by executors; results are those of events that pass the gateway."""

from __future__ import annotations

import csv
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.e2e.harness import Gateway, rows_in, until

EVENTS, FILES = 6_000, 12
HALF = {
    "switching": {"share": "50%", "send_above": "1ms", "keep_vm_above": "1ms"},
    "policy": {"type": "static", "vms": 1},
}


def is_no_event(number: int) -> bool:
    return number % 601 == 600


def fails(number: int) -> bool:
    return number % 701 == 700


def row(number: int) -> dict[str, str]:
    """The id is text, so that in each format some are no numbers."""
    return {"id": "none" if is_no_event(number) else str(number), "text": "x" if fails(number) else str(number)}


def write(folder: Path, at: int) -> None:
    """Let file ``at`` of all appear in the folder, complete."""
    rows = [row(number) for number in range(at * EVENTS // FILES, (at + 1) * EVENTS // FILES)]
    name = f"{at:02}.{('jsonl', 'csv', 'parquet', 'jsonl')[at % 4]}"
    hidden = folder / f".{name}"
    match name.rpartition(".")[2]:
        case "jsonl":
            lines = (
                f'{{"id": {json.dumps(each["id"]) if "n" in each["id"] else each["id"]}, "text": "{each["text"]}"}}'
                for each in rows
            )
            hidden.write_text("\n".join(lines))
        case "csv":
            with hidden.open("w", newline="") as file:
                writer = csv.DictWriter(
                    file, ["id", "text"], quoting=csv.QUOTE_ALL if at % 8 == 1 else csv.QUOTE_MINIMAL
                )
                writer.writeheader()
                writer.writerows(rows)
        case "parquet":
            pq.write_table(pa.Table.from_pylist(rows), hidden, row_group_size=150)
    hidden.rename(folder / name)


def expected() -> list[dict[str, int]]:
    """The results, computed without Spark."""
    good = (number for number in range(EVENTS) if not is_no_event(number) and not fails(number))
    return [{"id": number, "next": number + 1} for number in good if number % 2 == 0]


def query_of(folder: Path, sink: Path) -> dict[str, Any]:
    return {
        "source": {"type": "file", "path": str(folder), "follow": True},
        "schema": "id BIGINT, text STRING, _file STRING",
        "sql": "SELECT id, CAST(text AS INT) + 1 AS next FROM events WHERE id % 2 = 0 OR text = 'x' OR _file = 'none'",
        "runs": {"max_events": 200},
        "sink": {"type": "file", "path": str(sink)},
        "qos": {"latency": "2s"},
        **HALF,
    }


def test_dirty_files_are_exact_although_hosts_and_the_gateway_are_killed(state_dir: Path, tmp_path: Path) -> None:
    folder, sink, name = tmp_path / "in", tmp_path / "out", "referred-files"
    folder.mkdir()
    query = query_of(folder, sink)

    def some_of(files: Sequence[int]) -> None:
        before = len(rows_in(sink))
        for at in files:
            write(folder, at)
        until(lambda: len(rows_in(sink)) > before + 100, "some results")

    def started(path: str) -> Gateway:
        gateway = Gateway(tmp_path, state_dir, {name: query}, private={"data_path": path})
        gateway.start()
        return gateway

    gateway = started("reference")
    some_of(range(3))
    until(lambda: bool(gateway.vm_pids()), "a VM")
    os.kill(gateway.home_pid(), signal.SIGKILL)
    some_of(range(3, 6))
    gateway.kill()
    gateway = started("gateway")
    some_of(range(6, 9))
    gateway.kill()
    gateway = started("reference")
    some_of(range(9, FILES))
    until(lambda: len(rows_in(sink)) >= len(expected()), "all results")
    gateway.kill(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.tail()
    assert sorted(rows_in(sink), key=lambda each: each["id"]) == expected()
    letters = (gateway.state_dir / "queries" / name / "dead-letters.jsonl").read_text().splitlines()
    assert len(letters) == sum(is_no_event(number) or fails(number) for number in range(EVENTS))
    log = gateway.log.read_text()
    assert "executors read the events that stay at home" in log
    assert "% to vm-" in log
