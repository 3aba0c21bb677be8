"""Gives all parts of a divided query the same micro-batches, and joins their results. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from gateway.core.exchange import Exchange
from gateway.core.exchange.events import A
from gateway.core.exchange.instructions import Release
from gateway.core.exchange.joint import Joint
from gateway.query.flow.keyed.groups import Groups
from gateway.query.flow.keyed.split import split
from gateway.query.flow.run import Run
from infra.messages import Predicate


@dataclass(frozen=True, slots=True)
class Division:
    """How a keyed query is divided.

    Attributes:
        key: the column by which its events are divided.
        time_columns: the event-time column of each stream that has one; the only stream of a query has an empty name.
        predicates: the conditions that Spark evaluates before it computes the watermark.
        places: the place of each part, one for each.
        resume_seqs: where the state of each part continues.
        batch_ends: where micro-batches have to end, as far as that is known.
        arrived: called with the number of events that each part gets of a run.
    """

    key: str
    time_columns: Mapping[str, str]
    predicates: tuple[Predicate, ...]
    places: tuple[str, ...]
    resume_seqs: tuple[int, ...]
    batch_ends: tuple[int, ...]
    arrived: Callable[[Sequence[int]], None]


class Together(Generic[A]):
    """The runs on their way to the parts, and the results on their way from them.

    Args:
        division: how the query is divided.
        join: returns the results of all parts, given in the order of the parts, as one.
    """

    def __init__(self, division: Division, join: Callable[[Sequence[A]], A]) -> None:
        self._division = division
        self._groups = Groups((*division.batch_ends, *division.resume_seqs))
        self._joint = Joint(len(division.places), join)

    def add(self, run: Run) -> None:
        """Add the next run."""
        self._groups.add(run)

    def next_pieces(self, exchanges: Iterable[Exchange[Run, A]]) -> list[Run] | None:
        """Return what each part gets of the next micro-batch; None if none is due.

        It is due once each part has sent the ones before: what is sent sooner could not become larger any more.

        Args:
            exchanges: one for each part.
        """
        if any(exchange.waiting_runs for exchange in exchanges) or (group := self._groups.take()) is None:
            return None
        division = self._division
        pieces = split(group, division.key, len(division.places), division.time_columns, division.predicates)
        division.arrived([piece.events for piece in pieces])
        return pieces

    def joined(self, part: int, release: Release[A]) -> Release[A] | None:
        """See ``Joint.add``."""
        return self._joint.add(part, release)

    @property
    def waiting_runs(self) -> int:
        """How many runs wait to be put together."""
        return self._groups.waiting

    @property
    def waiting_events(self) -> int:
        """How many events wait with them."""
        return self._groups.waiting_events

    @property
    def oldest_waiting_s(self) -> float | None:
        """The earliest mean arrival of a run that waits; None if none does."""
        return self._groups.oldest_s
