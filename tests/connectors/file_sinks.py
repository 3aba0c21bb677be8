"""Helpers of the file sink's tests: releases, a sink, and its folder as a reader sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.core.exchange.reorder import Released
from gateway.sinks.base import ReleasedRows, Sink
from gateway.sinks.parts.filesink import FileSink, PartName
from gateway.sinks.threaded import ThreadedSink


def rows(first: int, last: int, *, late: bool = False) -> ReleasedRows:
    """Results of the events ``first`` to ``last``."""
    batch = pa.RecordBatch.from_pylist([{"seq": i} for i in range(first, last + 1)], pa.schema([("seq", pa.int64())]))
    return Released(first, last, batch, late)


def open_sink(folder: Path, *, ordered: bool = True, **kwargs: Any) -> FileSink:
    """The opened sink of a folder."""
    return FileSink(folder, owner="me", format=kwargs.pop("format", "jsonl"), ordered=ordered)


def parts(folder: Path) -> list[str]:
    """The names of the parts, sorted."""
    return sorted(path.name for path in folder.iterdir() if PartName.parse(path.name))


def seqs(folder: Path) -> list[int]:
    """The rows as a reader sees them: parts by name, lines in order."""
    return [json.loads(line)["seq"] for name in parts(folder) for line in (folder / name).read_text().splitlines()]


class FolderSubject:
    """A folder for the contract of all sinks."""

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
