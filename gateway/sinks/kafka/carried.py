"""What Spark delivers by itself: how far it is, and which of its results the gateway must not write again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from gateway.connectors.position import Position
from gateway.sinks.kafka.naming import EventName

UNKNOWN = ""
"""The part that an earlier gateway has noted."""


@dataclass(slots=True)
class _Part:
    """Some partitions of the source.

    Attributes:
        offsets: Spark has delivered everything before these, and perhaps more.
        results: where in each partition of the results' topic those of later events may begin.
        ends: where the gateway has passed what Spark has delivered; None while that is not known.
        names: of how many results of each record are in the topic.
    """

    offsets: Mapping[str, int]
    results: Mapping[int, int]
    ends: Mapping[str, int] | None = None
    names: Mapping[EventName, int] = field(default_factory=dict)

    def is_passed(self, offsets: Mapping[str, int]) -> bool:
        return self.ends is not None and all(offsets.get(place, 0) >= end for place, end in self.ends.items())


class CarriedParts:
    """The parts of a query that Spark carries, and those that the gateway has taken back and not passed yet."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._names: dict[EventName, int] = {}
        self._offsets: dict[str, int] = {}

    def found(self, results: Mapping[int, int] | None) -> None:
        """Note what an earlier gateway has left: where the results may begin that Spark has delivered."""
        self._parts = {} if results is None else {UNKNOWN: _Part({}, results)}

    def note(self, part: str, offsets: Mapping[str, int], results: Mapping[int, int]) -> None:
        """Note that Spark has delivered everything of a part before these offsets, and perhaps more; see ``_Part``."""
        self._parts[part] = _Part(dict(offsets), dict(results))
        self._offsets |= offsets
        self._names = self._all_names()

    def leave_out(self, part: str, names: Mapping[EventName, int]) -> None:
        """Note that Spark does not carry a part any more, and what it has delivered after the noted offsets."""
        ends: dict[str, int] = {}
        for topic, partition, offset in names:
            place = f"{topic}/{partition}"
            ends[place] = max(ends.get(place, 0), offset + 1)
        known = self._parts[part]
        self._parts[part] = _Part(known.offsets, known.results, ends, dict(names))
        self._names = self._all_names()

    def passed(self, source: Position) -> list[str]:
        """Return the parts of which nothing is left out once everything before a position is committed."""
        return [name for name, part in self._parts.items() if part.is_passed(source.offsets)]

    def forget(self, parts: list[str]) -> None:
        """Forget parts that are passed."""
        for part in parts:
            self._parts.pop(part, None)
        self._names = self._all_names()

    def merged(self, source: Position) -> Position:
        """Return a position of the gateway with what Spark has delivered besides.

        A run that was read before Spark was at its place is committed after that.
        """
        further = {place: offset for place, offset in self._offsets.items() if offset > source.offsets.get(place, 0)}
        return msgspec.structs.replace(source, offsets={**source.offsets, **further}) if further else source

    def results(self, without: list[str] | None = None) -> dict[int, int] | None:
        """Return where in the results' topic those of Spark may begin; None if there are none to be left out.

        Args:
            without: parts that do not count.
        """
        begins = [part.results for name, part in self._parts.items() if name not in (without or [])]
        if not begins:
            return None
        common = set(begins[0]).intersection(*begins[1:])  # one that an older note does not know begins at its start
        return {partition: min(each[partition] for each in begins) for partition in sorted(common)}

    @property
    def names(self) -> Mapping[EventName, int]:
        """How many results of each record are in the topic already, and are to be left out."""
        return self._names

    @property
    def settled(self) -> bool:
        """Whether nothing is left out any more of what Spark has delivered."""
        carried = {name for name, part in self._parts.items() if part.ends is None and name != UNKNOWN}
        return all(name in carried or part.ends == {} for name, part in self._parts.items())

    def _all_names(self) -> dict[EventName, int]:
        return {name: count for part in self._parts.values() for name, count in part.names.items()}
