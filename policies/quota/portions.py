"""The money of a quota, day by day: the portions that this gateway took."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from policies.quota.requests import (
    AgreeDay,
    Answer,
    ClaimDone,
    DayRead,
    DayTerms,
    ForgetPortions,
    QuotaLimits,
    ReadDay,
    TakePortion,
)

PortionRequest = ReadDay | AgreeDay | TakePortion | ForgetPortions

_PORTIONS_MOST = 10_000
_LOST_MOST = 3
"""After so many portions in a row that others took at the same time, what was read is too old."""
_DAYS_KEPT = 3
_FORGOTTEN_AFTER = 30
"""Days after which the objects of a day are deleted, some for each portion that is taken; no clock is so wrong."""
_SAME_USD = 1e-9


def day_terms(limits: QuotaLimits) -> DayTerms:
    """Return how the money of a day is divided; see ``QuotaLimits``.

    Raises:
        ValueError: the quota has no limit of money.
    """
    if limits.usd_per_day is None:
        raise ValueError("a quota without usd_per_day has no portions")
    wanted = limits.usd_per_day / limits.usd_a_portion if limits.usd_a_portion > 0 else _PORTIONS_MOST
    portions = min(_PORTIONS_MOST, max(1, math.floor(wanted)))
    return DayTerms(portions, limits.usd_per_day / portions)


@dataclass(slots=True)
class _Day:
    """A day: its terms, the portions that no gateway had when it was read, and those of this gateway."""

    terms: DayTerms | None = None
    free: list[int] | None = None
    mine: int = 0
    base_usd: float = 0.0
    spent: bool = False
    lost: int = 0


class Portions:
    """The portions of a quota, from one gateway's view. Pure; one request is open at a time.

    Args:
        limits: of the quota, with a limit of money.
        writer: a random word that no other process has.
        random: for the choice of portions.
    """

    def __init__(self, limits: QuotaLimits, *, writer: str, random: np.random.Generator) -> None:
        self._limits = limits
        self._writer = writer
        self._random = random
        self._days: dict[int, _Day] = {}
        self._needed: Mapping[int, float] = {}
        self._to_forget = 0

    # ------------------------------------------------------------------------------------------------------- looking

    @property
    def usd_by_day(self) -> dict[int, float]:
        """Return what this gateway may spend on each day."""
        return {
            day: known.base_usd + (known.mine * known.terms.usd if known.terms else 0.0)
            for day, known in self._days.items()
        }

    @property
    def spent(self) -> bool:
        """Return whether a day on which this gateway needs more has no portion left."""
        return any(known.spent and self._lacks(day) for day, known in self._days.items())

    def _lacks(self, day: int) -> bool:
        return self._needed.get(day, 0.0) > self.usd_by_day.get(day, 0.0) + _SAME_USD

    # ------------------------------------------------------------------------------------------------------ requests

    def restore(self, usd_by_day: Mapping[int, float]) -> None:
        """Continue with what an earlier process spent and reserved: it had portions for that."""
        for day, usd in usd_by_day.items():
            self._days.setdefault(day, _Day()).base_usd = usd

    def need(self, usd_by_day: Mapping[int, float]) -> None:
        """Note how much is needed on each day, with what is spent and reserved already."""
        self._needed = usd_by_day
        for day in usd_by_day:
            self._days.setdefault(day, _Day())
        for day in sorted(self._days)[:-_DAYS_KEPT]:
            del self._days[day]

    def next(self) -> PortionRequest | None:
        """Return the next request; None: there is nothing to do now."""
        for day, known in self._days.items():
            if known.spent or not self._lacks(day):
                continue
            if known.free is None:
                return ReadDay(day)
            if known.terms is None:
                return AgreeDay(day, day_terms(self._limits))
            if known.free:
                return TakePortion(day, known.free[int(self._random.integers(len(known.free)))], self._writer)
            known.spent = True
        if self._to_forget and self._needed:
            self._to_forget -= 1
            return ForgetPortions(min(self._needed) - _FORGOTTEN_AFTER)
        return None

    # ------------------------------------------------------------------------------------------------------- answers

    def take(self, request: PortionRequest, answer: Answer) -> None:
        """Note the answer to a request."""
        if isinstance(request, ForgetPortions):
            return
        known = self._days.setdefault(request.day, _Day())
        match request, answer:
            case ((ReadDay() | AgreeDay()), DayRead()):
                known.terms = answer.terms
                portions = 0 if answer.terms is None else answer.terms.portions
                known.free = [portion for portion in range(portions) if portion not in answer.taken]
            case TakePortion(), ClaimDone():
                known.mine += answer.done
                self._to_forget += answer.done
                known.lost = 0 if answer.done else known.lost + 1
                if known.lost >= _LOST_MOST:
                    known.free, known.lost = None, 0
                elif known.free is not None and request.portion in known.free:
                    known.free.remove(request.portion)
            case _:
                raise ValueError(f"{answer!r} does not answer {request!r}")
