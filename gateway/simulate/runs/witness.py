"""Checks the exchange of a query from outside, with its own records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.core.exchange import Exchange
from gateway.core.exchange.instructions import Done, Pack
from gateway.query.flow.run import Run
from gateway.simulate.options import QueryOptions
from gateway.simulate.runs.promises import BrokenPromiseError, promise
from policies.signals import HOME

_LEAST_RUNS = 2
_ALMOST = 1e-6
# Longer than the patience with any lane: by then it is abandoned, and another one answers.
STANDSTILL_S = 1800.0


class Witness:
    """Records the events and instructions of one exchange, and checks them. It uses none of the exchange's code.

    Args:
        options: the query.
        done_before: everything before this seq was committed by an earlier exchange.
        since_s: when the exchange begins.
    """

    def __init__(self, options: QueryOptions, done_before: int = 0, since_s: float = 0.0) -> None:
        self._options = options
        self._name = options.settings.name
        self._undone: dict[int, Run] = {}
        # Cloud lanes that should get no further run, and how many of their runs they may still pack.
        self._packs_left: dict[str, int] = {}
        self._in_flight_bytes: dict[str, int] = {}
        self._last_first_attempt: dict[str, int] = {}
        self._isolating: defaultdict[str, set[int]] = defaultdict(set)
        self._draining: set[str] = set()
        self._named: Mapping[str, float] = {HOME: 1.0}
        self._lanes_changed_s = 0.0
        # By run: since when it may be dispatched elsewhere, and where it was overdue.
        self._tried: dict[int, tuple[float, set[str]]] = {}
        self._in_lane: dict[int, str] = {}
        self._held_since_s: dict[int, float] = {}
        self._kept_bytes: dict[int, tuple[int, int]] = {}
        self._held_bytes = 0
        # From this seq on all runs were logged while results took all the room.
        self._full_from_seq: int | None = None
        self._next_seq = 0
        self._highest_seq = done_before - 1
        self._duplicates = 0
        self._progress_s = since_s

    # ---------------------------------------------------------------------------------------------------------- lanes

    @property
    def _lanes(self) -> Iterable[str]:
        return self._in_flight_bytes

    def _takes(self, lane: str) -> bool:
        return lane not in self._draining and (lane == HOME or self._named.get(lane, 0.0) > 0)

    def lane_opened(self, lane: str, at_s: float) -> None:
        """Note a lane; call it before the exchange gets the event."""
        self._in_flight_bytes[lane] = 0
        self._lanes_changed_s = at_s
        if not self._takes(lane):
            self._packs_left[lane] = 0

    def lane_lost(self, lane: str, at_s: float) -> None:
        """Note that a lane is gone."""
        self._lanes_changed_s = at_s
        del self._in_flight_bytes[lane]
        self._draining.discard(lane)
        # When it is open again, it is used like any other.
        self._tried = {seq: (asked_s, tried - {lane}) for seq, (asked_s, tried) in self._tried.items()}
        for known in (self._packs_left, self._last_first_attempt, self._isolating):
            known.pop(lane, None)

    def draining(self, lane: str, exchange: Exchange[Run, Any], at_s: float) -> None:
        """Note that a lane gets no further run; call it before the exchange gets the event."""
        if lane in self._in_flight_bytes:
            self._draining.add(lane)
            self._see_takers(exchange, at_s)

    def shares_set(self, shares: Mapping[str, float], exchange: Exchange[Run, Any], at_s: float) -> None:
        """Note the scheduler's shares; call it before the exchange gets them."""
        self._named = dict(shares)
        self._see_takers(exchange, at_s)

    def _see_takers(self, exchange: Exchange[Run, Any], at_s: float) -> None:
        self._lanes_changed_s = at_s
        for lane in self._lanes:
            if self._takes(lane):
                self._packs_left.pop(lane, None)
            elif lane not in self._packs_left:
                self._packs_left[lane] = exchange.lane(lane).open_runs

    # ----------------------------------------------------------------------------------------------------------- runs

    def logged(self, run: Run) -> None:
        """Note a run."""
        self._undone[run.first_seq] = run
        self._next_seq = run.last_seq + 1

    def packs(self, what: Pack[Run]) -> None:
        """Check that a run may go to this lane.

        Raises:
            BrokenPromiseError: it may not.
        """
        first, lane, name = what.run.first_seq, what.lane, self._name
        if lane not in self._in_flight_bytes:
            raise BrokenPromiseError(f"{name}: run {first} is for {lane}, which is not open")
        if lane in self._packs_left:
            self._packs_left[lane] -= 1
            promise(self._packs_left[lane] >= 0, f"{name}: run {first} went to {lane}, which should get no more")
        if what.attempt == 1:
            before = self._last_first_attempt.get(lane, -1)
            if first <= before:
                raise BrokenPromiseError(f"{name}: {lane} got run {before} before run {first}")
            self._last_first_attempt[lane] = first
        self._in_lane[first] = lane
        self._check_full(first)
        self._check_elsewhere(what)

    def _check_full(self, first_seq: int) -> None:
        if self._full_from_seq is None or first_seq < self._full_from_seq:
            return
        waited_for = first_seq <= self._highest_seq or first_seq == min(self._undone, default=first_seq)
        promise(waited_for, f"{self._name}: run {first_seq} went to a lane although results take all the room")

    def _check_elsewhere(self, what: Pack[Run]) -> None:
        asked_s, tried = self._tried.get(what.run.first_seq, (0.0, set()))
        if what.lane not in tried or what.run.disordered or asked_s <= self._lanes_changed_s:
            return
        others = {lane for lane in self._lanes if self._takes(lane)} - tried
        promise(not others, f"{self._name}: run {what.run.first_seq} is overdue in {what.lane}, and went there again")

    def sends(self, lane: str, payload_bytes: int) -> None:
        """Check that the host allows this many bytes.

        Raises:
            BrokenPromiseError: it does not.
        """
        before = self._in_flight_bytes[lane]
        if before and before + payload_bytes > self._options.credit_bytes:
            raise BrokenPromiseError(f"{self._name}: {payload_bytes} bytes go to {lane}, where {before} are in flight")
        self._in_flight_bytes[lane] = before + payload_bytes

    def credited(self, lane: str, consumed_bytes: int) -> None:
        """Note that a host has consumed bytes."""
        self._in_flight_bytes[lane] -= consumed_bytes

    def isolating(self, lane: str, first_seq: int) -> None:
        """Note that a host looks for bad rows in a run."""
        if first_seq in self._undone and self._in_lane.get(first_seq) == lane:
            self._isolating[lane].add(first_seq)

    def asked_again(self, lane: str, first_seq: int, at_s: float) -> None:
        """Note that a run was overdue in a lane."""
        _, tried = self._tried.get(first_seq, (at_s, set()))
        self._tried[first_seq] = at_s, tried | {lane}
        self._in_lane.pop(first_seq, None)

    def done(self, done: Done[Run], result_bytes: int, at_s: float) -> None:
        """Note an answer."""
        known = done.first_seq in self._undone
        if done.counts is not known:
            raise BrokenPromiseError(f"{self._name}: the answer for {done.first_seq} counts: {done.counts}")
        if not done.counts:
            self._duplicates += 1
            return
        self._progress_s = at_s
        for run in done.runs:
            del self._undone[run.first_seq]
            self._tried.pop(run.first_seq, None)
            if lane := self._in_lane.pop(run.first_seq, ""):
                self._isolating[lane].discard(run.first_seq)
        self._held_since_s[done.first_seq] = at_s
        self._kept_bytes[done.first_seq] = done.last_seq, result_bytes
        self._held_bytes += result_bytes
        if self._full_from_seq is None and self._held_bytes >= self._options.held_bytes_max:
            self._full_from_seq = self._next_seq

    def released(self, first_seq: int, last_seq: int, at_s: float) -> None:
        """Check that a gap before this release was waited for.

        Raises:
            BrokenPromiseError: it was not.
        """
        flush_s = self._options.flush_s
        if self._options.ordered and flush_s is not None and first_seq > self._highest_seq + 1:
            oldest_s = min(self._held_since_s.values())
            promise(oldest_s <= at_s - flush_s, f"{self._name}: {first_seq} did not wait for what comes before it")
        self._highest_seq = max(self._highest_seq, last_seq)
        del self._held_since_s[first_seq]

    def committed(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Note what the sink has; call it before the exchange gets the event."""
        for first, _ in ranges:
            self._held_bytes -= self._kept_bytes.pop(first)[1]
        if self._held_bytes < self._options.held_bytes_max:
            self._full_from_seq = None

    # ---------------------------------------------------------------------------------------------------------- slots

    def check_slot(self, exchange: Exchange[Run, Any], at_s: float) -> None:
        """Check, at the end of a slot, the invariants between events.

        Raises:
            BrokenPromiseError: one is broken.
        """
        if exchange.duplicate_count != self._duplicates:
            raise BrokenPromiseError(f"{self._name}: {exchange.duplicate_count} duplicates")
        if not self._undone:
            self._progress_s = at_s
        stands_s = at_s - self._progress_s
        if stands_s >= STANDSTILL_S:
            raise BrokenPromiseError(f"{self._name}: nothing is answered for {stands_s:.0f} s")
        flush_s = self._options.flush_s
        if self._options.ordered and flush_s is not None and self._held_since_s:
            oldest_s = min(self._held_since_s.values())
            if oldest_s <= at_s - flush_s:
                raise BrokenPromiseError(f"{self._name}: results are held since {oldest_s!r}, {flush_s} s at most")
        shares, followed = self._shares(), exchange.shares
        wrong = any(abs(followed.get(lane, 0.0) - shares.get(lane, 0.0)) > _ALMOST for lane in self._lanes)
        wrong |= any(share > 0 and lane != HOME and lane not in shares for lane, share in followed.items())
        if wrong:
            raise BrokenPromiseError(f"{self._name}: the shares are {dict(followed)}, and should be {shares}")
        if exchange.waiting_runs and not self._options.stateful:
            self._check_work(exchange, shares)

    def _shares(self) -> dict[str, float]:
        """Return the shares of the lanes: those of a missing cloud lane go home, a missing home's to the cloud."""
        cloud = {lane: self._named[lane] for lane in self._lanes if lane != HOME and self._takes(lane)}
        if HOME in self._lanes or not cloud:
            return {HOME: 1.0 - sum(cloud.values()), **cloud}
        return {lane: share / sum(cloud.values()) for lane, share in cloud.items()}

    def _check_work(self, exchange: Exchange[Run, Any], shares: Mapping[str, float]) -> None:
        """Check that no run waits while a lane that would take any has next to nothing to do."""
        if self._tried or self._full_from_seq is not None or self._held_bytes >= self._options.held_bytes_max:
            return
        if HOME in self._lanes:
            takers = [HOME] if shares[HOME] > _ALMOST else []
        else:
            disordered = any(run.disordered for run in self._undone.values())
            takers = [] if disordered else [lane for lane, share in shares.items() if share > 0 and lane != HOME]
        for lane in takers:
            view = exchange.lane(lane)
            works = view.open_runs - len(self._isolating[lane])
            room = self._options.credit_bytes > self._in_flight_bytes[lane] or not self._isolating[lane]
            promise(works >= _LEAST_RUNS or not room, f"{self._name}: runs wait, and {lane} works on {works} only")
