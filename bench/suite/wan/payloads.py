"""Rows about the bytes that cross the WAN for an event, in batches of 10, 100 and 1,000 events."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import zstandard
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from infra.payload import CodecPolicy, Encoder
from infra.rows.jsonlines import LineDecoder
from suite.row import Row
from suite.turns import OURS, Goal, Sample

BATCHES = (10, 100, 1_000)
HEADER_BYTES = 61
"""Of a record batch (Kafka's format, version 2)."""


def _figure(size: int) -> str:
    return f"bytes an event, batches of {size:,}"


@dataclass(frozen=True, slots=True)
class Load:
    """Events.

    Attributes:
        lines: as JSON.
        needed: the columns that the query needs.
    """

    lines: list[bytes]
    needed: pa.Schema

    def columns(self) -> pa.RecordBatch:
        """Return the events with these columns."""
        return LineDecoder(self.needed).decode(self.lines)[0]


def real(path: str) -> Path | None:
    """Return where real events are, in the folder that ``DATA=`` names; None if it was not given."""
    folder = os.environ.get("SPILLWAY_BENCH_DATA")
    return Path(folder) / path if folder else None


def origin() -> str:
    """Return in a word where the events are from."""
    return "real" if "SPILLWAY_BENCH_DATA" in os.environ else "generated"


Loaded = Callable[[], Load]


def _sent(loaded: Loaded, mode: str) -> Sample:
    """Measure the payloads of a lane, with the dictionaries that they need."""
    load, figures = loaded(), {}
    events = load.columns()
    for size in BATCHES:
        codecs = CodecPolicy.parse(dict.fromkeys(load.needed.names, mode))
        encoder = Encoder(events.schema, needed=load.needed, codecs=codecs)
        encoded = [encoder.encode(events.slice(at, size)) for at in range(0, events.num_rows, size)]
        sent = sum(len(each.payload) + sum(len(new.data) for new in each.dictionaries) for each in encoded)
        figures[_figure(size)] = sent / events.num_rows
    return Sample(figures)


def _by_kafka(loaded: Loaded) -> Sample:
    """Measure record batches of a Kafka producer with zstd, which sends whole events."""
    said, figures, packer = loaded().lines, {}, zstandard.ZstdCompressor()
    for size in BATCHES:
        sent = 0
        for at in range(0, len(said), size):
            builder = DefaultRecordBatchBuilder(2, DefaultRecordBatch.CODEC_NONE, False, -1, -1, 0, 1 << 26)
            for offset, line in enumerate(said[at : at + size]):
                builder.append(offset, 1_750_000_000_000 + offset, None, line, [])
            # What follows the batch's header is compressed; aiokafka needs one more package for that.
            sent += HEADER_BYTES + len(packer.compress(bytes(builder.build())[HEADER_BYTES:]))
        figures[_figure(size)] = sent / len(said)
    return Sample(figures)


def _by_gzip(loaded: Loaded) -> Sample:
    """Measure gzip of each event by itself, as ESM does."""
    lines = loaded().lines
    each = sum(len(gzip.compress(line, 6)) for line in lines) / len(lines)
    return Sample(dict.fromkeys(map(_figure, BATCHES), each))


def _by_flight(loaded: Loaded) -> Sample:
    """Measure Arrow's IPC with zstd, as Arrow Flight sends it: the needed columns."""
    events, figures = loaded().columns(), {}
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for size in BATCHES:
        sent = 0
        for at in range(0, events.num_rows, size):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, events.schema, options=options) as writer:
                begun = sink.tell()
                writer.write_batch(events.slice(at, size))
                sent += sink.tell() - begun
        figures[_figure(size)] = sent / events.num_rows
    return Sample(figures)


def _by_zstd_19(loaded: Loaded) -> Sample:
    """Measure the limit: zstd-19 over the needed columns of each batch."""
    events, figures = loaded().columns(), {}
    packer = zstandard.ZstdCompressor(level=19)
    for size in BATCHES:
        sent = 0
        for at in range(0, events.num_rows, size):
            columns = events.slice(at, size).to_pydict().values()
            sent += len(packer.compress(json.dumps(list(columns), default=str).encode()))
        figures[_figure(size)] = sent / events.num_rows
    return Sample(figures)


def row(name: str, title: str, note: str, loaded: Loaded) -> Row:
    """Return the row of a load."""
    return Row(
        name=name,
        title=f"bytes that cross the WAN: {title}",
        sides={
            OURS: partial(_sent, loaded, "zstd"),
            "Spillway, auto": partial(_sent, loaded, "auto"),
            "Kafka producer, zstd": partial(_by_kafka, loaded),
            "gzip, each event": partial(_by_gzip, loaded),
            "Arrow Flight, zstd": partial(_by_flight, loaded),
            "zstd-19": partial(_by_zstd_19, loaded),
        },
        goals=(
            *(Goal(_figure(size), "Kafka producer, zstd", 0.33, at_least=False) for size in BATCHES),
            *(Goal(_figure(size), "zstd-19", 1.5, at_least=False) for size in BATCHES),
        ),
        note=f"{note} Ours with zstd for each column; auto weighs bytes against CPU, on a link of 40 Mbit/s. Frames of "
        "the link are not in it, nor is a broker: Kafka's are record batches as a producer builds them.",
        turns_most=1,
    )
