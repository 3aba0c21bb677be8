"""The load of the rows ``light`` and ``heavy``: events for a Kafka topic, and what must come out of another.

Each event has a number of its own: of those that are to be timed it is the time at which they were produced, in
microseconds since 1970.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from engines.email.generator import generate_mail
from engines.email.queries import EMAIL_SQL, SCHEMA_DDL
from suite.reading.decode import lines
from suite.row import lasts_s

LATEST = 1_000_000_000_000
"""Numbers from here on are times."""


@dataclass(frozen=True, slots=True)
class Work:
    """A query and its events.

    Attributes:
        schema: of the events.
        sql: the query.
        around: of each kind of event, the JSON text before and after its number.
        passes: whether an event of this kind has a result.
        number: returns the number of a result.
        warm_up: events before anything is measured.
        bulk: events whose throughput is measured.
        paced_s: for how long latency is measured.
        few_per_s: latency is measured at this many events a second, too; 0: it is not.
    """

    schema: str
    sql: str
    around: tuple[tuple[bytes, bytes], ...]
    passes: tuple[bool, ...]
    number: Callable[[dict[str, object]], int]
    warm_up: int
    bulk: int
    paced_s: float = 5.0
    few_per_s: float = 0.0

    def event(self, number: int, at: int) -> bytes:
        """Return an event; its kind depends on ``at``."""
        before, after = self.around[at % len(self.around)]
        return before + str(number).encode() + after

    def results(self, events: int) -> int:
        """Return how many results so many events have."""
        rounds, rest = divmod(events, len(self.passes))
        return rounds * sum(self.passes) + sum(self.passes[:rest])


def light() -> Work:
    """Return a filter and some arithmetic on sensors' readings of 226 bytes."""
    said = [msgspec.json.decode(line) for line in lines()]
    return Work(
        schema="device STRING, at BIGINT, value DOUBLE, unit STRING",
        sql="SELECT device, at, value * 1.8 + 32 AS fahrenheit FROM events WHERE value > 15 AND unit = 'C'",
        around=tuple(_parted({**reading, "at": 0}, b'"at":0') for reading in said),
        passes=tuple(reading["value"] > 15 for reading in said),
        number=lambda row: int(str(row["at"])),
        warm_up=scaled(500_000),
        bulk=scaled(120_000),
    )


def long() -> Work:
    """Return ``light`` for so long that streams with a checkpoint each 10 s have one in each figure."""
    return dataclasses.replace(light(), bulk=scaled(600_000), paced_s=12.0, few_per_s=200.0)


def heavy() -> Work:
    """Return the e-mail benchmark's query on generated mail."""
    mails = [msgspec.to_builtins(mail) for mail in generate_mail(2_000, seed=3)]
    return Work(
        schema=SCHEMA_DDL,
        sql=EMAIL_SQL,
        around=tuple(_parted({**mail, "message_id": "0"}, b'"message_id":"0"') for mail in mails),
        passes=tuple(str(mail["sender"] or "").endswith("@enron.com") for mail in mails),
        number=lambda row: int(str(row["message_id"])),
        warm_up=scaled(40_000),
        bulk=scaled(10_000),
    )


def plain() -> Work:
    """Return events of 1 kB that become results as they are."""
    rng = random.Random(5)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(2_000)]
    texts = (" ".join(rng.choices(words, k=200))[:984] for _ in range(500))
    return Work(
        schema="at BIGINT, text STRING",
        sql="SELECT at, text FROM events",
        around=tuple(_parted({"at": 0, "text": text}, b'"at":0') for text in texts),
        passes=(True,),
        number=lambda row: int(str(row["at"])),
        warm_up=scaled(20_000),
        bulk=scaled(40_000),
    )


WORKS: dict[str, Callable[[], Work]] = {"light": light, "long": long, "heavy": heavy}


def answer(results: Iterable[dict[str, object]], work: Work) -> str:
    """Return a digest of the results of all events that were not timed, in whatever order they came."""
    rows = [{name: _rounded(value) for name, value in row.items()} for row in results if work.number(row) < LATEST]
    rows.sort(key=work.number)
    return hashlib.sha256(msgspec.json.encode(rows, order="sorted")).hexdigest()


def now() -> int:
    """Return the number of an event that is produced now."""
    return time.time_ns() // 1_000


def _rounded(value: object) -> object:
    return round(value, 6) if isinstance(value, float) else value


def _parted(event: dict[str, object], number: bytes) -> tuple[bytes, bytes]:
    before, found, after = msgspec.json.encode(event).partition(number)
    assert found
    head, _, tail = number.partition(b"0")
    return before + head, tail + after


def scaled(events: int) -> int:
    """Return how many of these events there are; in tests there are fewer."""
    return max(2_000, int(events * min(1.0, lasts_s())))
