from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from gateway.connectors.position import Position
from gateway.core.exchange.reorder import Released
from gateway.sinks.base import FencedError
from gateway.sinks.owned import OwnedSink
from gateway.sinks.parts.filesink import FileSink
from gateway.sinks.threaded import ThreadedSink


async def test_nothing_is_written_once_the_fleet_is_lost(tmp_path: Path) -> None:
    why = ""
    inner = ThreadedSink(lambda: FileSink(tmp_path, owner="me", format="jsonl", ordered=True))
    sink = OwnedSink(inner, lambda: why)
    await sink.open()
    batch = pa.RecordBatch.from_pylist([{"id": 1}])
    await sink.commit([Released(0, 0, batch, False)], Position(1))
    why = "fleet town was taken over"
    with pytest.raises(FencedError, match="fleet town was taken over"):
        await sink.commit([Released(1, 1, batch, False)], Position(2))
    await sink.close()
    assert list(sink.committed) == [(0, 0)]
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
