"""What the gateway notes of Spark's deliveries in the sink's control topic, and leaves out afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.connectors.position import Position
from gateway.sinks.base import SinkUnavailableError
from gateway.sinks.kafka.carried import UNKNOWN
from gateway.sinks.kafka.kafkasink import KafkaSink
from gateway.sinks.kafka.naming import EventName
from gateway.sinks.kafka.resultstopic import ResultsTopic
from infra.clock import Clock
from infra.failpoints import reached
from infra.retries import Outage

_QUIET_S: Final = 0.3
_QUIET_MOST_S: Final = 5.0


class DeliveryNotes:
    """Who owns which offsets of one query, as its sink knows it; waits while the brokers do not answer.

    Args:
        sink: the query's, opened.
        results: the topic of the results.
        clock: time.
    """

    def __init__(self, sink: KafkaSink, results: ResultsTopic, clock: Clock) -> None:
        self._sink, self._results, self._clock = sink, results, clock
        self._outage = Outage(clock, (SinkUnavailableError, OSError))

    @property
    def trouble(self) -> str:
        """Why the brokers cannot be asked now; empty if they can."""
        return self._outage.why

    @property
    def settled(self) -> bool:
        """Whether everything that Spark has delivered of parts that it does not carry is behind the gateway."""
        return self._sink.passed

    async def ends(self) -> dict[int, int]:
        """Return where the topic of the results ends."""
        return await self._outage.outlast("the topic of the results", self._results.ends)

    async def newest(self, source: Mapping[str, int]) -> tuple[EventName, float] | None:
        """See ``ResultsTopic.newest``."""
        return await self._outage.outlast("the topic of the results", lambda: self._results.newest(source))

    async def note(self, part: str, offsets: Mapping[str, int], results: Mapping[int, int]) -> None:
        """See ``KafkaSink.note_direct``."""
        await self._outage.outlast("the sink", lambda: self._sink.note_direct(part, offsets, results))

    async def recover(self, position: Position) -> Position:
        """Let the sink leave out what Spark has delivered, perhaps under another gateway; return where reading goes on.

        Home has ended what it carried when it opened the query again.

        Args:
            position: the end of the run log. Its last runs may not be delivered, although Spark has delivered events
                of theirs: then the gateway had taken these back before.
        """
        if (begins := self._sink.direct) is None:
            return position
        known = self._sink.source.offsets
        await self.take_back(UNKNOWN, known, begins)
        later = {place: max(offset, known.get(place, 0)) for place, offset in position.offsets.items()}
        return msgspec.structs.replace(position, offsets={**known, **later})

    async def take_back(self, part: str, offsets: Mapping[str, int], begins: Mapping[int, int]) -> None:
        """Let the sink leave out what Spark has delivered of a part; home has ended what it carried.

        Args:
            part: see ``KafkaSink.note_direct``.
            offsets: where the gateway continues in each partition of the part.
            begins: where in the topic of the results those of later events may begin.
        """
        names, begins = await self._names_after(begins, offsets)
        gives_up_s = self._clock.now() + _QUIET_MOST_S
        while self._clock.now() < gives_up_s:
            # Spark's producers send what they had when its tasks were ended.
            await self._clock.sleep_until(self._clock.now() + _QUIET_S)
            further, begins = await self._names_after(begins, offsets)
            if not further:
                break
            names.update(further)
        self._sink.leave_out(part, names)
        reached("direct.taken")

    async def _names_after(
        self, begins: Mapping[int, int], offsets: Mapping[str, int]
    ) -> tuple[Counter[EventName], Mapping[int, int]]:
        return await self._outage.outlast(
            "the topic of the results", lambda: self._results.names_after(begins, offsets)
        )
