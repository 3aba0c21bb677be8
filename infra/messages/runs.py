"""Messages about runs and their results."""

from __future__ import annotations

import msgspec

from infra.messages.base import Message
from infra.messages.reading import Range


class RunMessage(Message, frozen=True, kw_only=True, tag="Run"):
    """A run on its way to a host; the payload is its encoded rows (``infra.payload``).

    ``rows`` counts the rows in the payload; early predicates may have removed some of the seq range. A run by reference
    has ``ranges`` instead, in the order of its events, and no payload: then ``rows`` counts their offsets or lines;
    ``cost_bytes`` is what it counts against the host's credit.
    """

    query: str
    epoch: int
    first_seq: int
    last_seq: int
    attempt: int
    rows: int
    ranges: tuple[Range, ...] = ()
    cost_bytes: int = 0


class Poison(msgspec.Struct, frozen=True, kw_only=True):
    """A row that fails the query, and Spark's reason.

    ``row`` is an index into the rows that were sent with the run or, for a stateful query, with all runs of the answer.
    """

    row: int
    reason: str


class IsolatingMessage(Message, frozen=True, kw_only=True, tag="Isolating"):
    """A run failed in its micro-batch, and the host looks for the rows at fault while the query's next runs go on.

    The time that this takes says nothing about the host's speed.
    """

    query: str
    epoch: int
    first_seq: int


class Completed(Message, frozen=True, kw_only=True):
    """The answer to a run, or for a stateful query to a contiguous range of runs; the payload is the encoded results.

    ``batch_id`` numbers the host's micro-batches; ``batch_s`` is how long the micro-batch took. Of a stateful query,
    ``too_late`` rows (in an aggregation: groups) were behind the watermark and dropped, and with a watermark
    ``open_groups`` rows of state wait for it. If ``late`` was asked for, it has a bit for each row that was sent with
    the runs, the first one in the highest bit: set for a row that was dropped and had no effect, since what was not
    after ``watermark_ms`` (since 1970) came too late; empty if there is none. Of a run by reference, ``events`` says
    how many events its ranges have, ``raw_bytes`` how much memory these take, and ``dead`` how many records are none.
    """

    query: str
    epoch: int
    first_seq: int
    last_seq: int
    attempt: int
    rows: int
    batch_id: int
    batch_s: float
    poison: tuple[Poison, ...] = ()
    too_late: int = 0
    open_groups: int | None = None
    late: bytes = b""
    watermark_ms: int = 0
    events: int | None = None
    raw_bytes: int = 0
    dead: int = 0


class CommittedMessage(Message, frozen=True, kw_only=True, tag="Committed"):
    """The sink holds every result of a stateful query up to and including ``last_seq``: its checkpoint may advance."""

    query: str
    epoch: int
    last_seq: int


class Credit(Message, frozen=True, kw_only=True):
    """The host has consumed ``bytes`` payload bytes of a query's runs; the gateway may send as many more."""

    query: str
    epoch: int
    bytes: int


class Dictionary(Message, frozen=True, kw_only=True):
    """A trained zstd dictionary (the payload) for a field of a query; sent before the first run that uses it."""

    query: str
    field: str
    dictionary_id: int
