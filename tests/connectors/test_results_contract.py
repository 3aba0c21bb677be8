"""The source that reads another query's results passes the suite of all sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.sinks.parts.filesink import PartName
from gateway.sources.base import Source
from gateway.sources.results import ResultsSource
from gateway.sources.threaded import ThreadedSource
from tests.connectors.source_contract import SourceContract


class Upstream:
    """A query that keeps running: it commits a part for each thing that is put."""

    finite = False
    ordered = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts = 0
        self._next_seq = 0

    async def put(self, rows: list[dict[str, Any]]) -> None:
        self._commit([json.dumps(row).encode() for row in rows])

    async def put_undecodable(self, raw: bytes) -> None:
        self._commit([raw])

    def _commit(self, lines: list[bytes]) -> None:
        # As many events as rows, and one of which nothing came.
        last_seq = self._next_seq + len(lines)
        name = PartName(self._parts, self._next_seq, last_seq, late=False, format="jsonl")
        (self._folder / "part.tmp").write_bytes(b"".join(line + b"\n" for line in lines))
        (self._folder / "part.tmp").rename(self._folder / str(name))
        self._parts, self._next_seq = self._parts + 1, last_seq + 1

    def make(self) -> Source:
        return ThreadedSource(ResultsSource(self._folder, lambda: False))


class TestResultsSource(SourceContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> Upstream:
        return Upstream(tmp_path)
