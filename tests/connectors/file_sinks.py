"""Helpers of the file sink's tests: releases, a sink, and its folder as a reader sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from gateway.core.exchange.reorder import Released
from gateway.sinks.base import ReleasedRows
from gateway.sinks.parts.filesink import FileSink, PartName


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
