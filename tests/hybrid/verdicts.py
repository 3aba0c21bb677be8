"""Compares what queries returned in one place and in two, and counts the outcomes."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

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
TOGETHER: Final = 3
"""So many queries are under way at a time."""


@dataclass(frozen=True)
class Verdict:
    """What became of one query.

    Attributes:
        case: the query.
        outcome: ``identical``: in both executions the same rows came, each equally often. ``stays home``: it may not be
            switched. ``refused``: it is not opened at all. ``wrong``: anything else.
        reason: why it stays at home, is refused, or is wrong.
        alone: its execution at home; None if there was none.
        hybrid: its execution in two places; None if there was none.
        judged: whether the rows were also those of a batch.
        parts: its execution in parts, if it is keyed; None if it is not, or is not divided.
        undivided: why a keyed query is not divided.
    """

    case: StreamCase
    outcome: Outcome
    reason: str = ""
    alone: Journey | None = None
    hybrid: Journey | None = None
    judged: bool = False
    parts: Journey | None = None
    undivided: str = ""

    def __str__(self) -> str:
        way = self.hybrid
        how = "" if way is None else f", {way.away} events away, {way.moves} moves, {way.lost} VMs lost"
        if self.parts is not None:
            how += f"; in parts {self.parts.away} away, {self.parts.moves} moves, {self.parts.lost} lost"
        elif self.undivided:
            how += f"; not in parts: {self.undivided}"
        rows = "" if self.alone is None else f", {self.alone.rows.total()} rows"
        return f"{self.case.name} ({self.case.kind}): {self.outcome}{rows}{how} {self.reason}".rstrip()


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
        folder = self._folder / case.name
        try:
            alone = await at_one_site(case, folder / "alone", events, self._places)
        except QueryRefusedError as error:
            return Verdict(case, "refused", _plain(str(error)))
        except StuckError as error:
            return Verdict(case, "wrong", f"at home: {error}")
        if alone.stays:
            return Verdict(case, "stays home", alone.stays, alone)
        try:
            hybrid = await at_two_sites(
                case,
                folder / "hybrid",
                events,
                self._places,
                stateful=alone.stateful,
                draw=draw,
                losses=self._losses,
            )
        except (QueryRefusedError, StuckError) as error:
            return Verdict(case, "wrong", f"in two places: {error}", alone)
        wrong = difference(alone.rows, hybrid.rows) or await self._against_batch(case, events, alone)
        parts, undivided = None, ""
        if alone.switch_class == "keyed" and not wrong:
            try:
                where = folder / "parts"
                parts = await in_parts(case, where, events, self._places, alone.keys[0], draw=draw, losses=self._losses)
                wrong = _in_parts(difference(alone.rows, parts.rows))
            except QueryRefusedError as error:
                undivided = _plain(str(error))
            except StuckError as error:
                wrong = _in_parts(str(error))
        outcome: Outcome = "wrong" if wrong else "identical"
        return Verdict(case, outcome, wrong, alone, hybrid, bool(case.oracle), parts, undivided)

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


def _in_parts(wrong: str) -> str:
    return wrong and f"in parts: {wrong}"


def difference(wanted: Counter[str], found: Counter[str]) -> str:
    """Return how rows differ from those that are wanted; empty if they do not."""
    if wanted == found:
        return ""
    missing, more = (list((one - other).elements()) for one, other in ((wanted, found), (found, wanted)))
    return f"{len(missing)} of {wanted.total()} rows are missing: {missing[:SHOWN]}; {len(more)} more: {more[:SHOWN]}"


def _plain(reason: str) -> str:
    """Return a host's reason without its name and the query's."""
    return re.sub(r"^(\S+ refuses \S+: )?(query \S+: )?", "", reason)


def by_kind(verdicts: Sequence[Verdict]) -> list[tuple[object, ...]]:
    """Return a row of counts for each kind of query, and one for all."""
    rows = [_counts(kind, [each for each in verdicts if each.case.kind == kind]) for kind in KINDS]
    return [*(row for row in rows if row[1]), _counts("all", verdicts)]


def _counts(title: str, verdicts: Sequence[Verdict]) -> tuple[object, ...]:
    outcomes = Counter(each.outcome for each in verdicts)
    hybrids = [each.hybrid for each in verdicts if each.hybrid is not None]
    return (
        title,
        len(verdicts),
        outcomes["identical"],
        sum(each.judged for each in verdicts),
        sum(each.moves for each in hybrids),
        sum(each.lost for each in hybrids),
        outcomes["stays home"],
        outcomes["refused"],
        outcomes["wrong"],
    )
