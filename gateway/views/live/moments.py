"""One moment: the figures of all queries and VMs in one slot, and what happened in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happened: in the life of a VM, to a query, or by order of an operator.

    Attributes:
        at: seconds since 1970.
        what: one word.
        of: the VM or the query.
        why: the reason as a sentence; empty if there is none.
    """

    at: float
    what: str
    of: str
    why: str = ""


class Outlook(msgspec.Struct, frozen=True):
    """A forecast of a query's input rate, with the interval that contains 90 % of the values; see ``Expected``."""

    in_s: float
    rate: float
    low: float
    high: float


class QueryMoment(msgspec.Struct, frozen=True, omit_defaults=True):
    """The figures of one query.

    Attributes:
        state: of its supervisor.
        latency: L in s, which the thresholds are compared with.
        processing: mean processing latency in s of the events that were completed; None without any.
        delivery: mean delivery latency in s of the events that were released; None without any.
        input: events that became due, per second.
        completed: events that each lane completed, per second.
        share: R, in [0, 1].
        open_runs: dispatched and not completed.
        waiting: events that are due and not dispatched.
        out_of_order: share of the events whose run was completed after a later one.
        raw: bytes per second for VMs, before trimming and compression.
        sent: bytes per second that were sent for them.
        forecast: None where the policy has none.
        dead_letters: how many there are.
        moves: how often its state has moved.
        pin: the share that an operator has pinned; None without a pin.
    """

    state: str
    latency: float = 0.0
    processing: float | None = None
    delivery: float | None = None
    input: float = 0.0
    completed: dict[str, float] = {}
    share: float = 0.0
    open_runs: int = 0
    waiting: int = 0
    out_of_order: float = 0.0
    raw: float = 0.0
    sent: float = 0.0
    forecast: Outlook | None = None
    dead_letters: int = 0
    moves: int = 0
    pin: float | None = None


class VmMoment(msgspec.Struct, frozen=True):
    """One VM: its state, and the billing period that is paid for, in seconds since 1970."""

    state: str
    since: float
    until: float


class Moment(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that is shown of one slot, or of one minute.

    Attributes:
        id: the end, in milliseconds since 1970; grows with each moment, also from one gateway to the next.
        for_s: how long it lasted.
        phase: of the gateway.
        paused: whether an operator paused all decisions.
        usd: what all VMs of this gateway have cost.
        queries: by name.
        vms: by name.
        marks: what happened.
        decisions: what was newly decided about queries, as the API answers it; not kept for minutes.
    """

    id: int
    for_s: float
    phase: str = "running"
    paused: bool = False
    usd: float = 0.0
    queries: dict[str, QueryMoment] = {}
    vms: dict[str, VmMoment] = {}
    marks: tuple[Mark, ...] = ()
    decisions: tuple[dict[str, Any], ...] = ()


MARKS_MOST = 200
"""At most this many marks are kept of one moment."""


def minute_of(moments: list[Moment]) -> Moment:
    """Return several moments as one: the highest latencies, mean rates, and the last of everything else."""
    last = moments[-1]
    return Moment(
        id=last.id,
        for_s=sum(moment.for_s for moment in moments),
        phase=last.phase,
        paused=last.paused,
        usd=last.usd,
        queries={name: _query_of(name, moments) for name in last.queries},
        vms=last.vms,
        marks=tuple(mark for moment in moments for mark in moment.marks)[-MARKS_MOST:],
    )


def _query_of(name: str, moments: list[Moment]) -> QueryMoment:
    parts = [(moment.for_s, moment.queries[name]) for moment in moments if name in moment.queries]
    all_s = sum(for_s for for_s, _ in parts)
    last = parts[-1][1]

    def mean(value: Callable[[QueryMoment], float]) -> float:
        return sum(for_s * value(part) for for_s, part in parts) / all_s

    lanes = {lane for _, part in parts for lane in part.completed}
    return msgspec.structs.replace(
        last,
        latency=max(part.latency for _, part in parts),
        processing=_highest(part.processing for _, part in parts),
        delivery=_highest(part.delivery for _, part in parts),
        input=mean(lambda part: part.input),
        completed={lane: mean(lambda part, lane=lane: part.completed.get(lane, 0.0)) for lane in sorted(lanes)},  # type: ignore[misc]
        share=mean(lambda part: part.share),
        open_runs=max(part.open_runs for _, part in parts),
        waiting=max(part.waiting for _, part in parts),
        out_of_order=mean(lambda part: part.out_of_order),
        raw=mean(lambda part: part.raw),
        sent=mean(lambda part: part.sent),
    )


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def of_query(moment: Moment, query: str | None) -> Moment:
    """Return a moment with the figures of one query only; all if it is None."""
    if query is None:
        return moment
    kept: Mapping[str, QueryMoment] = {name: each for name, each in moment.queries.items() if name == query}
    decisions = tuple(each for each in moment.decisions if each["query"] == query)
    return msgspec.structs.replace(moment, queries=dict(kept), decisions=decisions)
