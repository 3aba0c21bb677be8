"""What crosses the WAN for runs with selections: whole runs, and only the events that a lane does not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from planning.document import table

from engines.traffic.overtaking import SELECTIONS
from engines.traffic.vehicles import generate_passages
from gateway.config.sections.selections import SelectionsConfig
from gateway.query.flow.runlog import SelectionMark
from gateway.query.flow.selecting.selector import Selected, Selector
from infra.payload import CodecPolicy, Encoder
from infra.payload.caching import CachingDecoder, CachingEncoder
from infra.payload.marks import with_marks
from patterns.degree import CONDITIONS, SCHEMA

VEHICLES, SEED, RATE_PER_S, WAY_S = 20_000, 1, 5.0, 60.0
RUN_EVENTS = 10
MOST_LANES = 4
OPERATORS: Mapping[str, Mapping[str, Any]] = {
    "overtaking": SELECTIONS,
    "10 s, each second": {"time": "at", "opens": {"every": "1s"}, "closes": {"after": "10s"}},
    "60 s, each second": {"time": "at", "opens": {"every": "1s"}, "closes": {"after": "60s"}},
}


def report(_data: Path | None) -> str:
    """Send the runs of three operators to one to four lanes in turn; return the table."""
    events = pa.Table.from_pylist(
        [
            {"vehicle": each.vehicle, "position": each.position, "at": each.at}
            for each in generate_passages(VEHICLES, SEED, RATE_PER_S, WAY_S)
        ],
        schema=SCHEMA,
    )
    rows = []
    for name, declared in OPERATORS.items():
        for lanes in (1, 2, MOST_LANES):
            whole, cached = sent_bytes(events, declared, lanes)
            count = events.num_rows
            rows.append((name, lanes, f"{whole / count:.1f}", f"{cached / count:.1f}", f"{cached / whole:.3f}"))
            print(rows[-1], flush=True)
    head = ("operator", "lanes", "whole runs, bytes an event", "event caches, bytes an event", "ratio")
    said = f"{events.num_rows:,} events, {RUN_EVENTS} in a run, zstd."
    return f"{table(head, rows)}\n\n{said}"


def sent_bytes(events: pa.Table, declared: Mapping[str, Any], lanes: int) -> tuple[int, int]:
    """Return the bytes of all payloads: as whole runs, and with an event cache in each lane.

    Raises:
        RuntimeError: a run does not come out as it was.
    """
    schema = with_marks(SCHEMA)
    plain = Encoder(schema, codecs=CodecPolicy("zstd"))
    senders = [CachingEncoder(Encoder(SCHEMA, codecs=CodecPolicy("zstd"))) for _ in range(lanes)]
    receivers = [CachingDecoder(schema) for _ in range(lanes)]
    whole = cached = 0
    for number, run in enumerate(_runs(events, declared)):
        if not run.batch.num_rows:
            continue
        sender, receiver = senders[number % lanes], receivers[number % lanes]
        payload = sender.encode(run.batch, run.seqs, run.open_from).payload
        sender.sent()
        if not receiver.decode(payload).equals(run.batch):
            raise RuntimeError(f"run {number} does not come out as it was")
        cached += len(payload)
        whole += len(plain.encode(run.batch).payload)
    return whole, cached


def _runs(events: pa.Table, declared: Mapping[str, Any]) -> Iterator[Selected]:
    rule = SelectionsConfig.model_validate(declared).rule
    conditions = CONDITIONS if declared is SELECTIONS else None
    selector = Selector(rule, conditions, 0, SelectionMark(), 1 << 30)
    for batch in events.combine_chunks().to_batches(RUN_EVENTS):
        yield selector.select(batch)
