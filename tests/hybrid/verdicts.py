"""Compares what queries returned in one place and in two, and counts the outcomes."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec.structs import replace
from pyspark.sql import SparkSession

from gateway.hosts.connection import QueryRefusedError
from tests.hybrid.cases import KINDS, StreamCase
from tests.hybrid.events import Event, runs
from tests.hybrid.oracle import batch_answer
from tests.hybrid.places import Places
from tests.hybrid.site import Journey, StuckError
from tests.hybrid.travel import at_one_site, at_two_sites, in_parts

Outcome = Literal["identical", "stays home", "refused", "wrong"]
SHOWN: Final = 3
ATTEMPTS: Final = 3
"""So often a query is run in two places until the VM has a part in it: others may lose it just then."""
TOGETHER: Final = 3
"""So many queries are under way at a time."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one query.

    Attributes:
        name: the query's.
        kind: its kind.
        outcome: ``identical``: in both executions the same rows came, each equally often. ``stays home``: it may not be
            switched. ``refused``: it is not opened at all. ``wrong``: anything else.
        reason: why it stays at home, is refused, or is wrong.
        switch_class: of its plan; empty if it is refused.
        rows: how many results it has.
        away: how many events were answered on VMs.
        moves: how often it moved with its state.
        lost: how often the VM was lost while it used it.
        judged: whether the rows were also those of a batch.
        part_moves: how often a part of it moved, if it is keyed; None if it is not, or is not divided.
        undivided: why a keyed query is not divided.
    """

    name: str
    kind: str
    outcome: Outcome
    reason: str = ""
    switch_class: str = ""
    rows: int = 0
    away: int = 0
    moves: int = 0
    lost: int = 0
    judged: bool = False
    part_moves: int | None = None
    undivided: str = ""

    def __str__(self) -> str:
        counts = f"{self.rows} rows, {self.away} events away, {self.moves} moves, {self.lost} VMs lost"
        if self.undivided:
            counts += f"; not in parts: {self.undivided}"
        elif self.part_moves is not None:
            counts += f"; {self.part_moves} moves in parts"
        return f"{self.name} ({self.kind}, {self.switch_class or 'no class'}): {self.outcome}, {counts} {self.reason}"


class Jury:
    """Runs queries in one place and in two, and judges them.

    Args:
        folder: of all their files.
        places: the hosts.
        spark: for the oracle.
        seed: of events and moments.
        losses: whether the VM may be lost.
        note: called with each verdict.
    """

    def __init__(
        self,
        folder: Path,
        places: Places,
        spark: SparkSession,
        seed: int,
        *,
        losses: bool,
        note: Callable[[Verdict], None] = print,
    ) -> None:
        self._folder, self._places, self._spark = folder, places, spark
        self._seed, self._losses, self._note = seed, losses, note
        self._batches = asyncio.Lock()

    async def judge_all(self, cases: Iterable[StreamCase], together: int = TOGETHER) -> list[Verdict]:
        """Judge queries, some at a time."""
        places = asyncio.Semaphore(together)

        async def judged(case: StreamCase) -> Verdict:
            async with places:
                verdict = await self.judge(case)
                self._note(verdict)
                return verdict

        return list(await asyncio.gather(*(judged(case) for case in cases)))

    async def judge(self, case: StreamCase) -> Verdict:
        """Judge a query."""
        draw = random.Random(f"{self._seed} {case.name}")
        events = runs(draw.randrange(1 << 30))
        found = Verdict(name=case.name, kind=case.kind, outcome="wrong")
        try:
            alone = await at_one_site(case, self._folder / case.name / "alone", events, self._places)
        except QueryRefusedError as error:
            return replace(found, outcome="refused", reason=_plain(str(error)))
        except (StuckError, TimeoutError) as error:
            return replace(found, reason=f"at home: {error}")
        found = replace(found, switch_class=alone.switch_class, rows=alone.rows.total())
        if alone.stays:
            return replace(found, outcome="stays home", reason=alone.stays)
        try:
            hybrid = await self._hybrid(case, events, draw, stateful=alone.stateful)
        except (QueryRefusedError, StuckError, TimeoutError) as error:
            return replace(found, reason=f"in two places: {error}")
        found = replace(found, away=hybrid.away, moves=hybrid.moves, lost=hybrid.lost, judged=bool(case.oracle))
        wrong = difference(alone.rows, hybrid.rows) or await self._against_batch(case, events, alone)
        if not wrong and alone.switch_class == "keyed":
            found = await self._divided(found, case, events, draw, alone)
            wrong = found.reason
        return replace(found, outcome="wrong" if wrong else "identical", reason=wrong)

    async def _hybrid(
        self, case: StreamCase, events: Sequence[Sequence[Event]], draw: random.Random, *, stateful: bool
    ) -> Journey:
        for attempt in range(ATTEMPTS):
            folder = self._folder / case.name / f"hybrid-{attempt}"
            found = await at_two_sites(
                case, folder, events, self._places, stateful=stateful, draw=draw, losses=self._losses
            )
            if found.away:
                return found
        raise StuckError("no event was processed on the VM")

    async def _divided(
        self, found: Verdict, case: StreamCase, events: Sequence[Sequence[Event]], draw: random.Random, alone: Journey
    ) -> Verdict:
        """Return the verdict with what became of a keyed query in parts; its reason says what is wrong, if anything."""
        folder, key = self._folder / case.name / "parts", alone.keys[0]
        try:
            parts = await in_parts(case, folder, events, self._places, key, draw=draw, losses=self._losses)
        except QueryRefusedError as error:
            return replace(found, undivided=_plain(str(error)))
        except StuckError as error:
            return replace(found, reason=f"in parts: {error}")
        wrong = difference(alone.rows, parts.rows)
        return replace(found, part_moves=parts.moves, reason=wrong and f"in parts: {wrong}")

    async def _against_batch(self, case: StreamCase, events: Sequence[Sequence[Event]], alone: Journey) -> str:
        if not alone.rows:
            return "it has no results, so nothing was compared"
        if not case.oracle:
            return ""
        async with self._batches:
            wanted = await asyncio.to_thread(
                batch_answer, self._spark, case, [event for run in events for event in run]
            )
        wrong = difference(wanted, alone.rows)
        return wrong and f"at home it differs from a batch: {wrong}"


def difference(wanted: Counter[str], found: Counter[str]) -> str:
    """Return how rows differ from those that are wanted; empty if they do not."""
    if wanted == found:
        return ""
    missing, more = (list((one - other).elements()) for one, other in ((wanted, found), (found, wanted)))
    return f"{len(missing)} of {wanted.total()} rows are missing: {missing[:SHOWN]}; {len(more)} more: {more[:SHOWN]}"


def _plain(reason: str) -> str:
    """Return a host's reason without the names and ids of its query."""
    ids = r"\[STREAM_FAILED\] Query \[id = \S+, runId = \S+\] terminated with exception: "
    return re.sub(ids, "", re.sub(r"^(\S+ refuses \S+: )?(query \S+: )?", "", reason))


def by_kind(verdicts: Sequence[Verdict]) -> list[tuple[object, ...]]:
    """Return a row of counts for each kind of query, and one for all."""
    rows = [_counts(kind, [each for each in verdicts if each.kind == kind]) for kind in KINDS]
    return [*(row for row in rows if row[1]), _counts("all", verdicts)]


def by_class(verdicts: Sequence[Verdict]) -> list[tuple[object, ...]]:
    """Return a row of counts for each class of those queries that are opened."""
    return [
        _counts(each, [found for found in verdicts if found.switch_class == each])
        for each in ("stateless", "keyed", "whole")
    ]


def _counts(title: str, verdicts: Sequence[Verdict]) -> tuple[object, ...]:
    outcomes = Counter(each.outcome for each in verdicts)
    return (
        title,
        len(verdicts),
        outcomes["identical"],
        sum(each.judged for each in verdicts),
        sum(each.part_moves is not None for each in verdicts),
        sum(each.moves for each in verdicts),
        sum(each.lost for each in verdicts),
        outcomes["stays home"],
        outcomes["refused"],
        outcomes["wrong"],
    )
