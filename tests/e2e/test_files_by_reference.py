"""Events of files and of objects that stay at home are read by executors; results are those that pass the gateway."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.connectors.s3_server import CREDENTIALS, S3Server
from tests.e2e.harness import Gateway, rows_in, until

EVENTS, FILES = 4_800, 12
BY_REFERENCE = "executors read the events that stay at home"


def is_no_event(number: int) -> bool:
    return number % 601 == 600


def fails(number: int) -> bool:
    return number % 701 == 700


def row(number: int) -> dict[str, str]:
    """The id is text, so that in each format some are no numbers."""
    return {"id": "none" if is_no_event(number) else str(number), "text": "x" if fails(number) else str(number)}


def content_of(kind: str, at: int) -> bytes:
    """Return file ``at`` of all."""
    rows = [row(number) for number in range(at * EVENTS // FILES, (at + 1) * EVENTS // FILES)]
    if kind == "jsonl":
        return "\n".join(json.dumps(each).replace(f'"{each["id"]}"', each["id"], 1) for each in rows).encode()
    if kind == "csv":
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, ["id", "text"], quoting=csv.QUOTE_ALL if at % 8 == 1 else csv.QUOTE_MINIMAL)
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()
    data = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), data, row_group_size=150)
    return data.getvalue()


class Inputs:
    """A folder and a bucket, in which the same files appear."""

    def __init__(self, folder: Path, server: S3Server) -> None:
        self.folder, self.client, self.bucket = folder, server.client(), server.make_bucket()
        self.sources: dict[str, dict[str, Any]] = {
            "referred-files": {"type": "file", "path": str(folder)},
            "referred-objects": {"type": "s3", "bucket": self.bucket, "endpoint": server.endpoint},
        }
        folder.mkdir()

    def bring(self, files: Sequence[int]) -> None:
        for at in files:
            kind = ("jsonl", "csv", "parquet", "jsonl")[at % 4]
            content, name = content_of(kind, at), f"{at:02}.{kind}"
            self.client.put_object(Bucket=self.bucket, Key=name, Body=content)
            (self.folder / f".{name}").write_bytes(content)
            (self.folder / f".{name}").rename(self.folder / name)


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inputs]:
    for key, value in CREDENTIALS.items():
        monkeypatch.setenv(key, value)
    server = S3Server(tmp_path)
    yield Inputs(tmp_path / "in", server)
    server.stop()


def expected() -> list[dict[str, int]]:
    """The results, computed without Spark."""
    good = (number for number in range(EVENTS) if not is_no_event(number) and not fails(number))
    return [{"id": number, "next": number + 1} for number in good if number % 2 == 0]


def query_of(source: dict[str, Any], sink: Path) -> dict[str, Any]:
    return {
        "source": {**source, "follow": True},
        "schema": "id BIGINT, text STRING, _file STRING",
        "sql": "SELECT id, CAST(text AS INT) + 1 AS next FROM events WHERE id % 2 = 0 OR text = 'x' OR _file = 'none'",
        "runs": {"max_events": 200},
        "sink": {"type": "file", "path": str(sink)},
        "qos": {"latency": "2s"},
        "switching": {"mode": "off"},
    }


def test_dirty_files_are_exact_although_the_host_and_the_gateway_are_killed(
    inputs: Inputs, state_dir: Path, tmp_path: Path
) -> None:
    sinks = {name: tmp_path / "out" / name for name in inputs.sources}
    queries = {name: query_of(source, sinks[name]) for name, source in inputs.sources.items()}

    def bring(files: Sequence[int]) -> None:
        before = {sink: len(rows_in(sink)) for sink in sinks.values()}
        inputs.bring(files)
        until(lambda: all(len(rows_in(sink)) > count + 100 for sink, count in before.items()), "some results")

    gateway = Gateway(tmp_path, state_dir, queries, {"max_vms": 0}, private={"data_path": "reference"})
    gateway.start()
    bring(range(4))
    # The next host has this gateway's credentials, whoever started the first one.
    os.kill(gateway.home_pid(), signal.SIGKILL)
    bring(range(4, 8))
    until(lambda: gateway.log.read_text().count(BY_REFERENCE) >= 3, "the next host reads both")
    gateway.kill()
    gateway.start()
    bring(range(8, FILES))
    until(lambda: all(len(rows_in(sink)) >= len(expected()) for sink in sinks.values()), "all results")
    gateway.kill(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.tail()
    for name, sink in sinks.items():
        assert sorted(rows_in(sink), key=lambda each: each["id"]) == expected()
        letters = (gateway.state_dir / "queries" / name / "dead-letters.jsonl").read_text().splitlines()
        assert len(letters) == sum(is_no_event(number) or fails(number) for number in range(EVENTS))
