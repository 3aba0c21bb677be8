"""Money spent and reserved, by hour, day and query, and limits that spent and reserved money together never exceed.

An expense counts to the hour and day in which the block that it pays for begins. So what is granted in an hour is spent
in that hour or not at all, whatever the clock does meanwhile, and the limits hold for each hour and day that the clock
ever showed. Times are seconds since 1970, so days are UTC days.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policies.quota.requests import Allowance

HOUR_S = 3600.0
DAY_S = 86_400.0
_HOURS_A_DAY = 24
_ROUNDING_USD = 1e-9
_DAYS_KEPT = 7


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of spending, by the wall clock's hours and days (UTC). None means no limit.

    Attributes:
        usd_per_day: by all queries in a day.
        usd_per_hour: by all queries in an hour.
        usd_per_query_day: by each query in a day.
    """

    usd_per_day: float | None = None
    usd_per_hour: float | None = None
    usd_per_query_day: float | None = None

    def __post_init__(self) -> None:
        limits = (self.usd_per_day, self.usd_per_hour, self.usd_per_query_day)
        if any(limit is not None and limit < 0 for limit in limits):
            raise ValueError(f"a budget must not be negative: {self}")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Money of one query in one hour; ``hour`` counts from 1970."""

    hour: int
    query: str
    usd: float


@dataclass(frozen=True, slots=True)
class Reservation:
    """Money set aside for a VM; ``until_s`` is the end of the time that it pays for."""

    name: str
    until_s: float
    parts: tuple[LedgerEntry, ...]


@dataclass(frozen=True, slots=True)
class LedgerState:
    """Everything that a ledger remembers."""

    spent: tuple[LedgerEntry, ...] = ()
    reserved: tuple[Reservation, ...] = ()


@dataclass(frozen=True, slots=True)
class LimitForecast:
    """Which limit is reached first at the present rate, and in how many seconds."""

    limit: str
    in_s: float


@dataclass(frozen=True, slots=True)
class Money:
    """The state of a gateway's budget.

    Attributes:
        budget: the limits.
        ledger: the money spent and reserved.
        overrun_usd: what was booked without a reservation.
        frozen: why nothing more may be reserved now; empty if it may.
        limit_reached: which limit will be reached at the present rate; None if none will.
        quota: what may be used of the quota; None: there is none.
    """

    budget: Budget
    ledger: LedgerState
    overrun_usd: float
    frozen: str
    limit_reached: LimitForecast | None
    quota: Allowance | None = None


class Ledger:
    """Books expenses; an expense that was reserved before never exceeds a limit.

    Args:
        budget: the limits.
        state: the state of an earlier ledger.

    Attributes:
        frozen: why nothing more may be reserved now; empty if it may.
        overrun_usd: what was booked without a reservation.
        granted_usd: by day, the gateway's part of a limit that it shares with others; None: it shares none.
    """

    def __init__(self, budget: Budget, state: LedgerState | None = None) -> None:
        self._budget = budget
        self._spent: dict[tuple[int, str], float] = {}
        self._reserved: dict[str, Reservation] = {}
        self._sums_of: dict[str, tuple[Reservation, Mapping[str, float]]] = {}
        self.frozen = ""
        self.overrun_usd = 0.0
        self.granted_usd: Mapping[int, float] | None = None
        if state is not None:
            self.restore(state)

    @property
    def budget(self) -> Budget:
        """The limits; with others, what was spent and reserved stays."""
        return self._budget

    @budget.setter
    def budget(self, budget: Budget) -> None:
        self._budget = budget

    # ------------------------------------------------------------------------------------------------------- looking

    def spent_usd(self, at_s: float) -> float:
        """Return what was spent on the day of ``at_s``."""
        return math.fsum(usd for (hour, _), usd in self._spent.items() if _day(hour) == day_of(at_s))

    def spent_by_query(self, at_s: float) -> dict[str, float]:
        """Return what each query spent on the day of ``at_s``."""
        found: dict[str, float] = {}
        for (hour, query), usd in self._spent.items():
            if _day(hour) == day_of(at_s):
                found[query] = found.get(query, 0.0) + usd
        return found

    @property
    def reserved_usd(self) -> float:
        """Return the sum of all reservations."""
        return math.fsum(part.usd for part in self._parts())

    def reserved_for(self, name: str, query: str | None = None) -> float:
        """Return what is reserved under ``name``, of one query or of all."""
        held = self._reserved.get(name)
        if held is None:
            return 0.0
        return math.fsum(part.usd for part in held.parts) if query is None else self._sums(held).get(query, 0.0)

    def _sums(self, held: Reservation) -> Mapping[str, float]:
        """Return what is reserved by query; cached while it does not change."""
        known = self._sums_of.get(held.name)
        if known is not None and known[0] is held:
            return known[1]
        of_query: defaultdict[str, list[float]] = defaultdict(list)
        for part in held.parts:
            of_query[part.query].append(part.usd)
        sums = {query: math.fsum(usd) for query, usd in of_query.items()}
        self._sums_of[held.name] = held, sums
        return sums

    def left_usd(self, at_s: float, *, granted: bool = True) -> float:
        """Return what is neither spent nor reserved, in the hour or in the day of ``at_s``, whichever is less.

        With ``granted``, only what is granted so far counts.
        """
        left_usd = min(left for _, left, _ in self._limits(at_s))
        return min(left_usd, self.granted_left_usd(at_s)) if granted else left_usd

    def granted_left_usd(self, at_s: float) -> float:
        """Return what is neither spent nor reserved of what is granted for the day of ``at_s``."""
        if self.granted_usd is None:
            return math.inf
        return self.granted_usd.get(day_of(at_s), 0.0) - self.committed_usd(day_of(at_s))

    def committed_usd(self, day: int) -> float:
        """Return what was spent and reserved for a day."""
        return math.fsum(part.usd for part in self._committed() if _day(part.hour) == day)

    @property
    def committed_by_day(self) -> dict[int, float]:
        """Return what was spent and reserved for each day."""
        return {day: self.committed_usd(day) for day in {_day(part.hour) for part in self._committed()}}

    def query_left_usd(self, query: str, at_s: float) -> float:
        """Return what a query may still spend on the day of ``at_s``."""
        if self._budget.usd_per_query_day is None:
            return math.inf
        day = day_of(at_s)
        committed = (part.usd for part in self._committed() if _day(part.hour) == day and part.query == query)
        return self._budget.usd_per_query_day - math.fsum(committed)

    def forecast(self, at_s: float, usd_per_s: float, paid_ahead_usd: float) -> LimitForecast | None:
        """Return the limit that will be reached before its hour or day is over; None if none will.

        Args:
            at_s: now.
            usd_per_s: what the VMs and their egress cost now.
            paid_ahead_usd: the part of the reservations that is for time still to come.
        """
        if usd_per_s <= 0:
            return None
        hits = []
        for name, left_usd, ends_s in self._limits(at_s):
            in_s = (max(0.0, left_usd) + paid_ahead_usd) / usd_per_s
            if at_s + in_s < ends_s:
                hits.append(LimitForecast(name, in_s))
        return min(hits, key=lambda hit: hit.in_s, default=None)

    def query_forecast(self, query: str, at_s: float, usd_per_s: float, paid_ahead_usd: float) -> LimitForecast | None:
        """Return when a query's own limit of the day will be reached; None if not today. See ``forecast``."""
        if usd_per_s <= 0:
            return None
        in_s = (max(0.0, self.query_left_usd(query, at_s)) + paid_ahead_usd) / usd_per_s
        ends_s = (day_of(at_s) + 1) * DAY_S
        return LimitForecast(f"usd_per_query_day of {query}", in_s) if at_s + in_s < ends_s else None

    def _limits(self, at_s: float) -> list[tuple[str, float, float]]:
        """Return name, money left and end of each limit at ``at_s``."""
        hour = _hour(at_s)
        parts = [(spent_in, usd) for (spent_in, _), usd in self._spent.items()]
        parts += [(part.hour, part.usd) for part in self._parts()]
        day_from = hour - hour % _HOURS_A_DAY
        per_day, per_hour = self._budget.usd_per_day, self._budget.usd_per_hour
        day_usd = hour_usd = math.inf
        if per_day is not None:
            day_usd = per_day - math.fsum([usd for at, usd in parts if day_from <= at < day_from + _HOURS_A_DAY])
        if per_hour is not None:
            hour_usd = per_hour - math.fsum([usd for at, usd in parts if at == hour])
        return [
            ("usd_per_day", day_usd, (_day(hour) + 1) * DAY_S),
            ("usd_per_hour", hour_usd, (hour + 1) * HOUR_S),
        ]

    def _parts(self) -> Iterable[LedgerEntry]:
        return (part for held in self._reserved.values() for part in held.parts)

    def _committed(self) -> Iterable[LedgerEntry]:
        yield from (LedgerEntry(hour, query, usd) for (hour, query), usd in self._spent.items())
        yield from self._parts()

    # ------------------------------------------------------------------------------------------------------- booking

    def reserve(self, name: str, needs_usd: Mapping[str, float], at_s: float, until_s: float) -> bool:
        """Make sure that at least ``needs_usd`` is reserved; return False, changing nothing, if it is too much.

        A query's own limit is not checked here: money that a query owes already is owed. The caller checks
        ``query_left_usd`` before.

        Args:
            name: of the VM.
            needs_usd: by query, everything that the VM may owe for that query before it is settled.
            at_s: when the block begins that this pays for; what is added counts to its hour and day.
            until_s: when that block ends.
        """
        held = self._reserved.get(name)
        there = {} if held is None else self._sums(held)
        missing = {query: usd - there.get(query, 0.0) for query, usd in needs_usd.items()}
        hour = _hour(at_s)
        new = tuple(LedgerEntry(hour, query, usd) for query, usd in missing.items() if usd > 0)
        if new and (self.frozen or math.fsum(part.usd for part in new) > self.left_usd(at_s) + _ROUNDING_USD):
            return False
        if new or held is None or held.until_s != until_s:
            self._reserved[name] = Reservation(name, until_s, _joined(held.parts if held else (), new))
        return True

    def settle(
        self, name: str, usd_by_query: Mapping[str, float], at_s: float, keep_usd: Mapping[str, float] | None = None
    ) -> None:
        """Book what was spent, each part in the hour in which it was committed; release the unused reservation.

        Args:
            name: of the VM.
            usd_by_query: what was spent. The part without a reservation is booked at ``at_s``.
            at_s: now.
            keep_usd: how much of the rest stays reserved, by query, for the next block.

        Raises:
            ValueError: an amount is negative.
        """
        if min(usd_by_query.values(), default=0.0) < 0:
            raise ValueError(f"{name} cannot have cost {dict(usd_by_query)} USD")
        held = self._reserved.pop(name, None)
        self._sums_of.pop(name, None)
        parts = () if held is None else held.parts
        spent, rest, overrun_usd = _take(parts, usd_by_query)
        overrun = (LedgerEntry(_hour(at_s), query, usd) for query, usd in overrun_usd.items() if usd > 0)
        for entry in (*spent, *overrun):
            self._book(entry)
        self.overrun_usd += math.fsum(overrun_usd.values())
        if held is not None and keep_usd is not None:
            # The newest parts were added for the next block.
            kept, _, _ = _take(rest[::-1], keep_usd)
            self._reserved[name] = Reservation(name, held.until_s, kept[::-1])

    def _book(self, entry: LedgerEntry) -> None:
        if entry.usd <= 0:
            return
        booked = (entry.hour, entry.query)
        self._spent[booked] = self._spent.pop(booked, 0.0) + entry.usd
        # The clock may have shown any days: those without a booking for the longest time are dropped.
        days = list(dict.fromkeys(_day(hour) for hour, _ in reversed(self._spent)))
        for key in [key for key in self._spent if _day(key[0]) in days[_DAYS_KEPT:]]:
            del self._spent[key]

    # ------------------------------------------------------------------------------------------------------ restarts

    @property
    def state(self) -> LedgerState:
        """Return everything that must survive this process."""
        spent = tuple(LedgerEntry(hour, query, usd) for (hour, query), usd in self._spent.items())
        return LedgerState(spent, tuple(self._reserved.values()))

    def restore(self, state: LedgerState) -> None:
        """Continue from the state of another ledger.

        Raises:
            ValueError: something was booked or reserved here already.
        """
        if self._spent or self._reserved:
            raise ValueError("a ledger can only be restored before anything is booked in it")
        for entry in state.spent:
            self._book(entry)
        self._reserved = {held.name: held for held in state.reserved}

    def give_up_reservations(self, at_s: float, *, idle_s: float, period_s: float, usd_per_hour: float) -> float:
        """Book everything that a dead gateway had reserved as spent, and return the sum.

        Its VMs continued for up to ``idle_s`` after they lost the gateway. The periods that they entered meanwhile are
        booked too, although they were not reserved.

        Args:
            at_s: now.
            idle_s: how long a VM continues without a gateway.
            period_s: billing period.
            usd_per_hour: price of a VM.
        """
        given_up_usd = 0.0
        for held in tuple(self._reserved.values()):
            usd = {part.query: self.reserved_for(held.name, part.query) for part in held.parts}
            entered = math.ceil((min(at_s, held.until_s + idle_s) - held.until_s) / period_s - 1e-9)
            if entered > 0 and usd:
                payer = next(iter(usd))
                usd[payer] += entered * period_s / HOUR_S * usd_per_hour
            self.settle(held.name, usd, held.until_s)
            given_up_usd += math.fsum(usd.values())
        return given_up_usd


def _take(
    parts: tuple[LedgerEntry, ...], usd_by_query: Mapping[str, float]
) -> tuple[tuple[LedgerEntry, ...], tuple[LedgerEntry, ...], dict[str, float]]:
    """Take amounts from ``parts``, first parts first; return what was taken, what is left, and what was missing."""
    missing = dict(usd_by_query)
    taken, rest = [], []
    for part in parts:
        usd = min(part.usd, missing.get(part.query, 0.0))
        missing[part.query] = missing.get(part.query, 0.0) - usd
        taken.append(LedgerEntry(part.hour, part.query, usd))
        rest.append(LedgerEntry(part.hour, part.query, part.usd - usd))
    return tuple(entry for entry in taken if entry.usd > 0), tuple(entry for entry in rest if entry.usd > 0), missing


def _joined(parts: tuple[LedgerEntry, ...], new: tuple[LedgerEntry, ...]) -> tuple[LedgerEntry, ...]:
    """Return ``parts`` followed by ``new``; a query's money joins its last part if that is of the same hour.

    A VM reserves a little more in each slot in which it sends; the list must not grow with the VM's life.
    """
    if not new:
        return parts
    joined, last = list(parts), {part.query: at for at, part in enumerate(parts)}
    for part in new:
        at = last.get(part.query)
        if at is None or joined[at].hour != part.hour:
            joined.append(part)
        else:
            joined[at] = LedgerEntry(part.hour, part.query, joined[at].usd + part.usd)
    return tuple(joined)


def day_of(at_s: float) -> int:
    """Return the day of a time, counted from 1970."""
    return _day(_hour(at_s))


def _hour(at_s: float) -> int:
    return int(at_s // HOUR_S)


def _day(hour: int) -> int:
    return hour // _HOURS_A_DAY
