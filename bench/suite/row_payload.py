"""Bytes that cross the WAN for an event, in batches of 10, 100 and 1,000 events."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import zstandard
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from gateway.sources.rows.jsonlines import LineDecoder
from infra.payload import CodecPolicy, Encoder
from suite.row import Row
from suite.row_decode import NEEDED, lines
from suite.turns import OURS, Goal, Sample

BATCHES = (10, 100, 1_000)
HEADER_BYTES = 61
"""Of a record batch (Kafka's format, version 2)."""


def _figure(size: int) -> str:
    return f"bytes an event, batches of {size:,}"


def _needed() -> pa.RecordBatch:
    """Return the events with the columns that a query needs."""
    return LineDecoder(NEEDED).decode(lines())[0]


def _all() -> pa.RecordBatch:
    rows = [json.loads(line) for line in lines()]
    return pa.RecordBatch.from_pylist(rows)


def _sent(mode: str) -> Sample:
    """Measure the payloads of a lane, with the dictionaries that they need."""
    events, figures = _all(), {}
    for size in BATCHES:
        encoder = Encoder(events.schema, needed=NEEDED, codecs=CodecPolicy.parse(dict.fromkeys(NEEDED.names, mode)))
        encoded = [encoder.encode(events.slice(at, size)) for at in range(0, events.num_rows, size)]
        sent = sum(len(each.payload) + sum(len(new.data) for new in each.dictionaries) for each in encoded)
        figures[_figure(size)] = sent / events.num_rows
    return Sample(figures)


def ours() -> Sample:
    """Measure columns that are packed with zstd, as Kafka's producer does."""
    return _sent("zstd")


def by_auto() -> Sample:
    """Measure what ``auto`` sends on a link of 40 Mbit/s, on which it weighs bytes against CPU."""
    return _sent("auto")


def by_kafka() -> Sample:
    """Measure record batches of a Kafka producer with zstd, which sends whole events."""
    said, figures, packer = lines(), {}, zstandard.ZstdCompressor()
    for size in BATCHES:
        sent = 0
        for at in range(0, len(said), size):
            builder = DefaultRecordBatchBuilder(2, DefaultRecordBatch.CODEC_NONE, False, -1, -1, 0, 1 << 20)
            for offset, line in enumerate(said[at : at + size]):
                builder.append(offset, 1_750_000_000_000 + offset, None, line, [])
            # What follows the batch's header is compressed; aiokafka needs one more package for that.
            sent += HEADER_BYTES + len(packer.compress(bytes(builder.build())[HEADER_BYTES:]))
        figures[_figure(size)] = sent / len(said)
    return Sample(figures)


def by_gzip() -> Sample:
    """Measure gzip of each event by itself, as ESM does."""
    each = sum(len(gzip.compress(line, 6)) for line in lines()) / len(lines())
    return Sample(dict.fromkeys(map(_figure, BATCHES), each))


def by_flight() -> Sample:
    """Measure Arrow's IPC with zstd, as Arrow Flight sends it: the needed columns."""
    events, figures = _needed(), {}
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


def by_zstd_19() -> Sample:
    """Measure the limit: zstd-19 over the needed columns of each batch."""
    events, figures = _needed(), {}
    packer = zstandard.ZstdCompressor(level=19)
    for size in BATCHES:
        sent = 0
        for at in range(0, events.num_rows, size):
            columns = events.slice(at, size).to_pydict().values()
            sent += len(packer.compress(json.dumps(list(columns)).encode()))
        figures[_figure(size)] = sent / events.num_rows
    return Sample(figures)


ROW = Row(
    name="payload",
    title="bytes that cross the WAN: sensors",
    sides={
        OURS: ours,
        "Spillway, auto": by_auto,
        "Kafka producer, zstd": by_kafka,
        "gzip, each event": by_gzip,
        "Arrow Flight, zstd": by_flight,
        "zstd-19": by_zstd_19,
    },
    goals=(
        *(Goal(_figure(size), "Kafka producer, zstd", 0.33, at_least=False) for size in BATCHES),
        *(Goal(_figure(size), "zstd-19", 1.5, at_least=False) for size in BATCHES),
    ),
    note="Ours with zstd for each column; auto weighs bytes against CPU, on a link of 40 Mbit/s. "
    "Events of 226 bytes with 12 fields, of which the query needs 4. Frames of the link are not in it, "
    "nor is a broker: Kafka's are record batches as a producer builds them.",
)
