from __future__ import annotations

import csv
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.sources.base import Source
from gateway.sources.files.folder import Folder
from gateway.sources.files.listed import ListedFiles
from gateway.sources.files.notes import NOTES_NAME, NotesFile
from gateway.sources.files.reading.passes import FixedFiles, PassesSource
from gateway.sources.threaded import ThreadedSource
from infra.clock import SystemClock
from infra.files.choosing import open_by_name
from tests.connectors.source_contract import SCHEMA, SourceContract, SourceSubject, events, read, rows

_OPEN = partial(open_by_name, strict=False)


class OneFile:
    """A file that exists before it is read."""

    finite = True
    ordered = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> Source:
        return ThreadedSource(PassesSource(FixedFiles([self.path]), _OPEN))


class JsonLines(OneFile):
    async def put(self, rows: list[dict[str, Any]]) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    async def put_undecodable(self, raw: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(raw + b"\n")


class Csv(JsonLines):
    async def put(self, rows: list[dict[str, Any]]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, SCHEMA.names)
        if not self.path.exists():
            writer.writeheader()
        writer.writerows(rows)
        with self.path.open("ab") as file:
            file.write(text.getvalue().encode())


class Columnar(OneFile):
    """A Parquet or Arrow file in small pieces; its ``id`` is bytes, so that one can be invalid text."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._rows: list[dict[str, Any]] = []

    async def put(self, rows: list[dict[str, Any]]) -> None:
        self._rows += [row | {"id": row["id"].encode()} for row in rows]
        table = pa.Table.from_pylist(self._rows, pa.schema([("n", pa.int64()), ("id", pa.binary())]))
        if self.path.suffix == ".parquet":
            pq.write_table(table, self.path, row_group_size=13)
            return
        new = pa.ipc.new_file if self.path.suffix == ".arrow" else pa.ipc.new_stream
        with pa.OSFile(str(self.path), "wb") as file, new(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=13)

    async def put_undecodable(self, raw: bytes) -> None:
        self._rows.append({"n": -1, "id": raw})


class FollowedFolder:
    """A folder into which a file is renamed for each thing that is put."""

    finite = False
    ordered = True

    def __init__(self, path: Path) -> None:
        self._folder = path / "in"
        self._folder.mkdir()
        self._notes = path / "state" / NOTES_NAME
        self._count = 0

    async def put(self, rows: list[dict[str, Any]]) -> None:
        self._bring(b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    async def put_undecodable(self, raw: bytes) -> None:
        self._bring(raw + b"\n")

    def _bring(self, content: bytes) -> None:
        name = f"{self._count:04}.jsonl"
        self._count += 1
        (self._folder / f"{name}.tmp").write_bytes(content)
        (self._folder / f"{name}.tmp").rename(self._folder / name)

    def make(self) -> Source:
        files = ListedFiles(Folder(self._folder), NotesFile(self._notes), SystemClock(), follow=True)
        return ThreadedSource(PassesSource(files, _OPEN, folder=True), files.acknowledge)


class TestTextFile(SourceContract):
    @pytest.fixture(params=[("in.jsonl", JsonLines), ("in.csv", Csv)], ids=["jsonl", "csv"])
    def subject(self, request: pytest.FixtureRequest, tmp_path: Path) -> SourceSubject:
        name, kind = request.param
        subject: SourceSubject = kind(tmp_path / name)
        return subject


class TestColumnarFile(SourceContract):
    @pytest.fixture(params=["in.parquet", "in.arrow", "in.arrows"])
    def subject(self, request: pytest.FixtureRequest, tmp_path: Path) -> SourceSubject:
        return Columnar(tmp_path / request.param)

    async def test_a_record_that_is_no_event_is_told_with_its_bytes(self, subject: SourceSubject) -> None:
        """A row of columns has no bytes of its own, so the dead letter holds it as JSON text."""
        await subject.put(rows(0, 4))
        await subject.put_undecodable(b"this is \xff no event")
        await subject.put(rows(5, 9))
        source = subject.make()
        await source.open(SCHEMA)
        chunks = await read(source, 11, max_records=4)
        assert events(chunks) == rows(0, 9)
        (dead,) = [record for chunk in chunks for record in chunk.dead]
        assert (dead.record, dead.offset) == (5, 5)
        assert json.loads(dead.raw) == {"n": -1, "id": str(b"this is \xff no event")}
        assert "UTF8" in dead.reason
        assert (await source.read_between(chunks[1].start, chunks[1].end)).dead == (dead,)
        await source.close()


class TestFollowedFolder(SourceContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> SourceSubject:
        return FollowedFolder(tmp_path)
