"""One lane of one query: its open runs, whether it has room, and which of its runs are overdue."""

from __future__ import annotations

from collections import OrderedDict

from gateway.core.exchange.entry import Copy
from gateway.core.exchange.lanes.outlet import Outlet
from gateway.core.exchange.lanes.rate import ServiceRate
from gateway.core.exchange.lanes.recalls import Recalls
from gateway.core.exchange.lanes.watch import DOUBLINGS_MAX, LaneWatch
from policies.failures.overdue import Patience

# A lane gets as many events as it can serve in this time: enough to keep the engine busy during a round trip and the
# planning of its next micro-batch. It does not get more, since events in a lane can no longer be switched.
HORIZON_S = 1.5
LEAST_RUNS = 2


class LaneState:
    """The state of one open lane.

    Args:
        name: its name.
        credit_bytes: how many payload bytes may be in flight.
        planned_end_seq: see ``LaneOpened``.
        patience: how long to wait for answers.
        in_order: the host answers no run before those that were sent earlier.
    """

    def __init__(
        self, name: str, credit_bytes: int, planned_end_seq: int, patience: Patience, *, in_order: bool = False
    ) -> None:
        self.name = name
        self.outlet = Outlet(name, credit_bytes)
        self.rate = ServiceRate()
        self.watch = LaneWatch(patience)
        self.recalls = Recalls()
        self.copies: dict[int, Copy] = {}
        self.draining = False
        self.given_up = False
        self.open_runs = self.open_events = 0
        self._isolating_runs = self._isolating_events = 0
        self._isolating_since_s: float | None = None
        self._isolated_s = 0.0
        self._planned_end_seq = planned_end_seq
        self._in_order = in_order
        self._isolating_most_s = patience.isolating_s
        self._waits_for_sink = False
        # Sent runs that wait for an answer, by how often their time was doubled: each in order of sending.
        self._sent: tuple[OrderedDict[int, Copy], ...] = tuple(OrderedDict() for _ in range(DOUBLINGS_MAX + 1))

    # ---------------------------------------------------------------------------------------------------------- room

    def has_room(self, now_s: float) -> bool:
        """Return whether the lane may take another run now; runs in which the host looks for bad rows take no room."""
        if self.working_runs < LEAST_RUNS:
            return not self._isolating_runs or self.outlet.has_credit
        events = self.open_events - self._isolating_events
        return self.outlet.empty and self.outlet.has_credit and events < self.rate.per_s(now_s) * HORIZON_S

    @property
    def working_runs(self) -> int:
        """Open runs without those in which the host looks for bad rows."""
        return self.open_runs - self._isolating_runs

    def takes(self, first_seq: int, attempt: int, now_s: float) -> bool:
        """Return whether the lane may take this run now: it has room, or at least credit if results wait for the run.

        A run that was dispatched before holds up all results after it. A micro-batch that was planned before its host
        was lost runs again as a whole: it answers none of its runs before it has all of them.
        """
        if self.draining:
            return False
        if self.has_room(now_s):
            return True
        waited_for = attempt > 0 or first_seq < self._planned_end_seq
        return waited_for and self.outlet.has_credit

    # ---------------------------------------------------------------------------------------------------------- runs

    def put(self, copy: Copy, attempt: int, now_s: float) -> None:
        """Queue a run."""
        copy.attempt, copy.open, copy.empty, copy.put_at_s = attempt, True, False, now_s
        self.copies[copy.first_seq] = copy
        if copy.first_seq not in self.outlet:  # a run that was recalled may still be on its way
            self.outlet.put(copy.first_seq)
        self.open_runs += 1
        self.open_events += copy.events
        self._see_work(now_s)

    def sent(self, copy: Copy, now_s: float, took_s: float) -> None:
        """Wait from now on for the answer of a run, whose sending took ``took_s``."""
        copy.sent_at_s = now_s
        self._sent[_doublings(copy)][copy.first_seq] = copy
        self.watch.sent(now_s, took_s)

    def set_aside(self, copy: Copy, now_s: float) -> None:
        """Note that the host looks for bad rows in a run: it is not overdue, and its time says nothing of the lane."""
        copy.isolating = True
        self._sent[_doublings(copy)].pop(copy.first_seq, None)
        self._isolating_runs += 1
        self._isolating_events += copy.events
        self._see_work(now_s)

    def answered(self, first: Copy | None, now_s: float) -> None:
        """Note an answer of the host, and its first run if that run was dispatched here."""
        if first is None:
            self.watch.answered(now_s, None)
        elif not first.isolating and not first.empty:
            self.watch.answered(now_s, first.sent_at_s)

    def drop(self, copy: Copy, now_s: float, *, served: bool) -> None:
        """Remove a run that was answered: here (``served``) or elsewhere."""
        del self.copies[copy.first_seq]
        if served and copy.open and not copy.isolating:
            self.rate.served(copy.events)
            self.recalls.answered()
        if copy.open:
            self._close(copy)
        self.outlet.drop(copy.first_seq)
        self._see_work(now_s)

    def see_sink(self, now_s: float, *, waits: bool) -> None:
        """Note whether results of this lane are not in the sink yet: its host keeps state, and answers no run before.

        The sink may be down, or another part of the query has yet to answer the same run.
        """
        if waits != self._waits_for_sink:
            self._waits_for_sink = waits
            if not waits:
                self._wait_anew(now_s)
            self._see_work(now_s)

    def see_overdue(self, now_s: float) -> list[Copy]:
        """Return the runs that were sent too long ago, by seq; from now on they take no room."""
        late: list[Copy] = []
        if self._stands_still(now_s):
            return late
        for doublings, sent in enumerate(self._sent):
            limit_s = self.watch.overdue_after_s(doublings)
            while sent and _since_s(first := next(iter(sent.values())), now_s) > limit_s:
                self._close(first)
                first.tried = True
                late.append(first)
        self._see_work(now_s)
        return sorted(late, key=lambda copy: copy.first_seq)

    def recall(self, copy: Copy, now_s: float) -> float:
        """Give a run up that home does now: it takes no room, and is not sent if it was not; return the pause after it.

        An answer still counts if it is the first.
        """
        self._close(copy)
        copy.tried = True
        self.outlet.drop(copy.first_seq)
        self._see_work(now_s)
        return self.recalls.recalled(now_s, now_s - copy.put_at_s)

    def isolating_s(self, now_s: float) -> float:
        """Return how long the host has looked for bad rows in runs of this lane."""
        since_s = self._isolating_since_s
        return self._isolated_s + (0.0 if since_s is None else now_s - since_s)

    def silence_s(self, now_s: float) -> float | None:
        """Return how long the lane has had work and answered nothing, if that is too long."""
        return self.watch.silence_s(now_s, held_back=self.outlet.sending)

    def _close(self, copy: Copy) -> None:
        copy.open = False
        self._sent[_doublings(copy)].pop(copy.first_seq, None)
        self.open_runs -= 1
        self.open_events -= copy.events
        if copy.isolating:
            self._isolating_runs -= 1
            self._isolating_events -= copy.events

    def _see_work(self, now_s: float) -> None:
        if self._isolating_runs and self._isolating_since_s is None:
            self._isolating_since_s = now_s
        elif not self._isolating_runs and self._isolating_since_s is not None:
            self._isolated_s += now_s - self._isolating_since_s
            self._isolating_since_s = None
            if self._in_order:
                self._wait_anew(now_s)
        works = self.working_runs > 0
        self.watch.works(works and not self._stands_still(now_s), now_s)
        # A search is no silence, but it takes time from the runs behind it.
        self.rate.works(works, now_s)

    def _stands_still(self, now_s: float) -> bool:
        """Whether all runs wait for the sink, or until the host has found the bad rows of one.

        Not for ever for the latter: its answer may be lost.
        """
        since_s = self._isolating_since_s
        isolating = self._in_order and since_s is not None and now_s - since_s <= self._isolating_most_s
        return self._waits_for_sink or isolating

    def _wait_anew(self, now_s: float) -> None:
        """Count the time of the runs that were sent from now on: until now the host could not answer them."""
        for sent in self._sent:
            for copy in sent.values():
                copy.sent_at_s = now_s

    def validate(self) -> None:
        """Assert that the counters match the runs here, and that each run is being sent or waited for."""
        here = [copy for copy in self.copies.values() if copy.open]
        aside = [copy for copy in here if copy.isolating]
        counted = (self.open_runs, self.open_events, self._isolating_runs, self._isolating_events)
        summed = (len(here), sum(c.events for c in here), len(aside), sum(c.events for c in aside))
        assert counted == summed, f"lane {self.name} counts {counted}, and has {summed}"
        waited_for = {first_seq for sent in self._sent for first_seq in sent}
        for copy in here:
            reasons = [copy.first_seq in self.outlet, copy.first_seq in waited_for, copy.isolating, copy.empty]
            assert any(reasons), f"run {copy.first_seq} is open in lane {self.name}, and nobody waits for it"
        sending = {copy.first_seq for copy in here if copy.sent_at_s is not None and not copy.isolating}
        assert waited_for <= sending, f"lane {self.name} waits for {waited_for}, and sent {sending}"
        self.outlet.validate()


def _doublings(copy: Copy) -> int:
    return min(copy.attempt - 1, DOUBLINGS_MAX)


def _since_s(copy: Copy, now_s: float) -> float:
    assert copy.sent_at_s is not None, f"run {copy.first_seq} is waited for, and was not sent"
    return now_s - copy.sent_at_s
