"""How far a query has read its source."""

from __future__ import annotations

import msgspec


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place between two records of a source.

    Attributes:
        record: how many records (events and undecodable ones) come before it.
        part: the source's own number of a piece (a loop over a file, the first seq of a result part, a segment).
        offset: the place in that piece (in bytes or rows, depending on the source).
        offsets: for a source with partitions, the next offset of each, by ``<topic>/<partition>``.
        streams: for several sources, the position in each, by the name of its stream.
        replayed: how many dead letters were replayed before it.
    """

    record: int = 0
    part: int = 0
    offset: int = 0
    offsets: dict[str, int] = {}
    streams: dict[str, Position] = {}
    replayed: int = 0

    def of_stream(self, name: str) -> Position:
        """Return the position in one of several sources; its start if nothing of it was read."""
        return self.streams.get(name, Position())
