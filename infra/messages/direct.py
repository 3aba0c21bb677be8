"""Partitions that Spark carries from Kafka to Kafka by itself."""

from __future__ import annotations

import msgspec

from infra.messages.base import Message
from infra.messages.reading import BrokerAccess

_DIRECT = "~direct"
CHECKPOINT_S = 10.0
"""How often a host tells how far it is, unless a flow says otherwise."""


def direct_name(query: str, part: str = "") -> str:
    """Return the name by which a host knows a part of a query that it carries by itself.

    The name without a part begins those of all its parts.
    """
    return f"{query}{_DIRECT}{part}"


class OffsetAt(msgspec.Struct, frozen=True, array_like=True):
    """A place in a partition: its next offset."""

    topic: str
    partition: int
    offset: int


class DirectFlow(msgspec.Struct, frozen=True, kw_only=True):
    """Which partitions a host carries, and where their results go.

    Attributes:
        starts: the first offset of each partition; the others belong to somebody else.
        access: to the brokers of the results.
        topic: of the results.
        key: the column whose text is the key of a result; empty: there is none.
        headers: (header, column) of each result, besides those that name its event.
        checkpoint_s: how often the host tells how far all results are written; what is between two of these moments
            is read again after the host has died.
    """

    starts: tuple[OffsetAt, ...]
    access: BrokerAccess
    topic: str
    key: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    checkpoint_s: float = CHECKPOINT_S


class DirectProgress(Message, frozen=True, kw_only=True):
    """All results of the events before these offsets are written.

    Attributes:
        query: its name, as ``direct_name`` gives it.
        epoch: of the gateway that opened it.
        ends: of each partition; those of the last progress if nothing came since.
        events: how many events were read since the last progress.
        real_time: whether Spark runs it in real-time mode; otherwise in micro-batches.
        stopped: the host has stopped it, and writes nothing more; of later events some results may be written.
    """

    query: str
    epoch: int
    ends: tuple[OffsetAt, ...]
    events: int
    real_time: bool
    stopped: bool = False
