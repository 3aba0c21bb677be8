"""Which part of a query's raw bytes crosses the WAN: runs of its own events, encoded as for a lane to a VM."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from gateway.config.connectors.sources import FileSourceConfig
from gateway.config.queries import QueryConfig
from gateway.query.crossing import Encoding, crossing_of, encoding_of
from gateway.query.flow.runlog import SelectionMark
from gateway.query.flow.selecting.selector import HeldTooMuchError, Selector
from gateway.simulate.options import LEAST_RUN_S
from gateway.simulate.parameters.profilingruns import HELD_BYTES, ProfileError
from infra.messages import QueryPlan
from infra.payload import Encoded
from infra.payload.caching import CachingEncoder
from infra.payload.codecs.dictionaries import TRAIN_RUNS
from infra.payload.sealing import SECRET_BYTES, FieldKeys

RUNS_MOST: Final = 2 * TRAIN_RUNS
"""So many runs are enough: half of them train the dictionaries of all fields, the others are measured."""


@dataclass(frozen=True, slots=True)
class SentPart:
    """What crosses the WAN of a query.

    Attributes:
        part: bytes of payloads per raw byte, which is a byte of the events in memory. Above 1 if runs are tiny.
        how: from which runs it was measured.
    """

    part: float
    how: str


def run_events(query: QueryConfig, event_bytes: float) -> int:
    """Return how many events a run has while the query is not behind, if its source has a rate; else when it is full.

    Args:
        query: its config.
        event_bytes: mean size of an event in memory.
    """
    limits = query.runs
    full = max(1, min(limits.max_events, int(limits.max_bytes // max(1.0, event_bytes))))
    match query.source:
        case FileSourceConfig(replay=replay) if replay is not None and replay.rate_per_s is not None:
            rate_per_s = replay.rate_per_s * replay.speed
            return max(1, min(full, round(rate_per_s * max(limits.linger_s, LEAST_RUN_S))))
        case _:
            return full


def sent_part(
    name: str, query: QueryConfig, plan: QueryPlan, events: pa.RecordBatch, link_bytes_per_s: float | None = None
) -> SentPart | None:
    """Encode runs of events as for one lane to a VM that gets all of them, and return what they become.

    The runs of the first half only train the dictionaries, as the first ones of a lane do. The dictionaries themselves,
    which each VM gets once, do not count.

    Args:
        name: the query's.
        query: its config.
        plan: the properties of its plan.
        events: in their order, each once, of the plan's input schema; at least one.
        link_bytes_per_s: the rate of the link, by which ``compress: auto`` chooses; None: the default.

    Returns:
        None if nothing may be sent, because of protected fields.

    Raises:
        ProfileError: the events of open selections need too much memory.
    """
    crossing = crossing_of(query.payload, plan, events.schema)
    if crossing.reason:
        return None
    keys = FieldKeys(secrets.token_bytes(SECRET_BYTES), name) if crossing.sealed else None
    selects = query.selection_rule is not None
    encoding = encoding_of(crossing, query.payload, plan, events.schema, crossing.seals(keys)[0], selects=selects)
    encoding.codecs.link_rate(link_bytes_per_s)
    size = run_events(query, events.nbytes / events.num_rows)
    runs = [events.slice(at, size) for at in range(0, max(1, events.num_rows - size + 1), size)][:RUNS_MOST]
    trained = len(runs) // 2
    try:
        sent_bytes = [len(each.payload) if each.rows else 0 for each in _encoded(query, plan, encoding, runs)]
    except HeldTooMuchError as error:
        raise ProfileError(f"query {name}: {error}") from error
    raw_bytes = sum(run.nbytes for run in runs[trained:])
    how = f"{len(runs) - trained} runs of {runs[0].num_rows} events, after {trained} for its dictionaries"
    return SentPart(sum(sent_bytes[trained:]) / max(1, raw_bytes), how)


def _encoded(
    query: QueryConfig, plan: QueryPlan, encoding: Encoding, runs: Sequence[pa.RecordBatch]
) -> Iterator[Encoded]:
    encoder, rule = encoding.encoder, query.selection_rule
    if not isinstance(encoder, CachingEncoder):
        for run in runs:
            yield encoder.encode(run)
        return
    assert rule is not None, "only a query with selections has such an encoder"
    selector = Selector(rule, plan.selecting, 0, SelectionMark(), HELD_BYTES)
    for run in runs:
        selected = selector.select(run)
        yield encoder.encode(selected.batch, selected.seqs, selected.open_from)
        encoder.sent()
