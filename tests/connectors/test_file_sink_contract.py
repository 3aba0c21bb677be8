from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import pytest

from gateway.sinks.base import Sink
from gateway.sinks.parts.filesink import FileSink
from gateway.sinks.threaded import ThreadedSink
from tests.connectors.sink_contract import SinkContract


class FolderSubject:
    exactly_once = True
    fences = False

    def __init__(self, folder: Path, form: Literal["jsonl", "parquet"]) -> None:
        self._folder = folder
        self._form = form

    def make(self, *, owner: str = "me", epoch: int = 1) -> Sink:
        return ThreadedSink(lambda: FileSink(self._folder, owner=owner, format=self._form, ordered=True))

    async def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for path in sorted(self._folder.glob(f"[0-9]*.{self._form}")):
            if self._form == "parquet":
                found += pq.read_table(path).to_pylist()
            else:
                found += [json.loads(line) for line in path.read_bytes().splitlines()]
        return found


class TestFileSink(SinkContract):
    @pytest.fixture(params=["jsonl", "parquet"])
    def subject(self, tmp_path: Path, request: pytest.FixtureRequest) -> FolderSubject:
        return FolderSubject(tmp_path / "out", request.param)
