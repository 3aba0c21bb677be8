"""Read-only views of an exchange's lanes, runs and results, and the check of all invariants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from gateway.core.exchange.entry import R, RunState
from gateway.core.exchange.events import A
from gateway.core.exchange.lanes.lane import LaneState
from gateway.core.exchange.outbox import Outbox, Outcome
from gateway.core.exchange.reorder import Reorderer
from gateway.core.exchange.routing import Router
from gateway.core.exchange.runs import Runs
from gateway.core.exchange.settings import ExchangeSettings
from gateway.core.intervals import IntervalSet
from policies.signals import HOME


@dataclass(frozen=True, slots=True)
class OpenRuns:
    """The open runs of a lane as the profiler counts them; ``oldest_arrival_s`` is a run's earliest mean arrival."""

    events: int
    runs: int
    oldest_arrival_s: float


def open_together(each: Sequence[Mapping[str, OpenRuns]]) -> dict[str, OpenRuns]:
    """Return the open runs by lane of several exchanges together."""
    found: dict[str, OpenRuns] = {}
    for by_lane in each:
        for lane, runs in by_lane.items():
            before = found.get(lane, OpenRuns(0, 0, runs.oldest_arrival_s))
            oldest_s = min(before.oldest_arrival_s, runs.oldest_arrival_s)
            found[lane] = OpenRuns(before.events + runs.events, before.runs + runs.runs, oldest_s)
    return found


class LaneView:
    """One open lane, always in its present state."""

    def __init__(self, lane: LaneState, now_s: float) -> None:
        self._lane = lane
        self._now_s = now_s

    @property
    def open_events(self) -> int:
        """Events in the lane; those of overdue runs do not count."""
        return self._lane.open_events

    @property
    def open_runs(self) -> int:
        """Runs in the lane; overdue ones do not count."""
        return self._lane.open_runs

    @property
    def first_seqs(self) -> list[int]:
        """First seqs of the runs that are in the lane, overdue ones too."""
        return sorted(self._lane.copies)

    @property
    def has_room(self) -> bool:
        """Whether the lane could take another run at the exchange's last event."""
        return self._lane.has_room(self._now_s)

    @property
    def has_credit(self) -> bool:
        """Whether the host accepts more bytes."""
        return self._lane.outlet.has_credit

    @property
    def in_flight_bytes(self) -> int:
        """Payload bytes that the host has not reported as consumed."""
        return self._lane.outlet.credit.in_flight_bytes

    @property
    def draining(self) -> bool:
        """Whether the lane gets no further run."""
        return self._lane.draining

    def rate_per_s(self, now_s: float) -> float:
        """Return how many events per second the lane serves while it has work; 0 before the first."""
        return self._lane.rate.per_s(now_s)

    def isolating_s(self, now_s: float) -> float:
        """Return how long the host has looked for bad rows in runs of the lane."""
        return self._lane.isolating_s(now_s)

    def waiting_s(self, now_s: float) -> float | None:
        """Return how long the lane has had work and answered nothing; None while it has no work."""
        return self._lane.watch.waiting_s(now_s)


class ExchangeViews(Generic[R, A]):
    """The state of an exchange, and all read-only views of it.

    Args:
        settings: its settings.
        committed: the closed ranges of seq that the sink has (by an earlier gateway).
    """

    def __init__(self, settings: ExchangeSettings, *, committed: Iterable[tuple[int, int]] = ()) -> None:
        before = IntervalSet(committed)
        reorderer: Reorderer[Outcome[A]] = Reorderer(
            flush_s=settings.flush_s, ordered=settings.ordered, released=before
        )
        self._settings = settings
        self._runs: Runs[R] = Runs(before)
        self._outbox: Outbox[A] = Outbox(reorderer, settings.held_bytes_max)
        self._lanes: dict[str, LaneState] = {}
        self._router = Router()
        self._held = False
        self._now_s = float("-inf")
        self._duplicate_count = 0

    # ---------------------------------------------------------------------------------------------------------- runs

    @property
    def waiting_runs(self) -> int:
        """Runs that wait for a lane."""
        return self._runs.waiting_runs

    def queued_runs(self, batch_runs: int) -> int:
        """Return how many runs wait for a lane or, at home, for the micro-batch after the present one.

        Args:
            batch_runs: how many runs one micro-batch takes.
        """
        home = self._lanes.get(HOME)
        at_home = 0 if home is None else max(0, home.working_runs - batch_runs)
        return self._runs.waiting_runs + at_home

    @property
    def held_inputs(self) -> list[R]:
        """The inputs of runs that are kept, since a run may still have to be sent."""
        return [entry.run for entry in self._runs.entries.values() if entry.run is not None]

    @property
    def waiting_events(self) -> int:
        """Events that wait for a lane."""
        return self._runs.waiting_events

    @property
    def oldest_waiting_s(self) -> float | None:
        """The earliest mean arrival of a run that waits for a lane; None when none does."""
        return self._runs.oldest_waiting_s

    @property
    def idle(self) -> bool:
        """Whether every run that was logged is committed."""
        return not self._runs.entries

    @property
    def duplicate_count(self) -> int:
        """Answers for runs that were done before."""
        return self._duplicate_count

    def is_done(self, first_seq: int, last_seq: int) -> bool:
        """Return whether all of this range was answered before."""
        return self._runs.done.covers(first_seq, last_seq)

    def asked(self, lane: str, first_seq: int, last_seq: int) -> tuple[R, ...]:
        """Return the runs that make up this range and were dispatched to this lane: open there, or overdue.

        Empty if the range is done, or does not consist of such runs: then ``Answered`` is refused.
        """
        if self.is_done(first_seq, last_seq):
            return ()
        return tuple(entry.held_run for entry in self._runs.asked(lane, first_seq, last_seq))

    def story(self, seq: int) -> list[str]:
        """Return the life of the run that contains this seq, as sentences; only the last steps are kept."""
        entry = self._runs.at(seq)
        if entry is not None:
            return entry.story()
        return [f"Seq {seq} was committed before." if self.is_done(seq, seq) else f"Seq {seq} was never logged here."]

    # --------------------------------------------------------------------------------------------------------- lanes

    @property
    def open_lanes(self) -> tuple[str, ...]:
        """The names of the lanes that are open."""
        return tuple(self._lanes)

    def lane(self, name: str) -> LaneView:
        """Return a view of an open lane.

        Raises:
            KeyError: it is not open.
        """
        return LaneView(self._lanes[name], self._now_s)

    def rates_per_s(self, now_s: float) -> list[float]:
        """Return ``LaneView.rate_per_s`` of each open lane."""
        return [lane.rate.per_s(now_s) for lane in self._lanes.values()]

    def rested(self, lane: str) -> bool:
        """Return whether nothing of the query is open in a lane; also True for a lane that is not open."""
        return lane not in self._lanes or not self._lanes[lane].open_runs

    def open_by_lane(self) -> Mapping[str, OpenRuns]:
        """Return the open runs of each lane as the profiler counts them; empty lanes are left out.

        A run counts from ``Dispatched`` on, in the lane that this named last, until it is answered or the lane is lost;
        also while it is overdue. A run in which the host looks for bad rows does not count.
        """
        counted: dict[str, OpenRuns] = {}
        for name, lane in self._lanes.items():
            entries = [self._runs.entries[copy.first_seq] for copy in lane.copies.values() if not copy.isolating]
            counted_here = [entry for entry in entries if entry.counted_in == name]
            if counted_here:
                oldest_s = min(entry.held_run.arrival_s for entry in counted_here)
                counted[name] = OpenRuns(sum(entry.events for entry in counted_here), len(counted_here), oldest_s)
        return counted

    @property
    def shares(self) -> Mapping[str, float]:
        """The effective shares, by lane; they sum to 1."""
        return self._router.shares

    @property
    def cloud_share(self) -> float:
        """R: the part of the events that cloud lanes should get."""
        return 1.0 - self._router.shares.get(HOME, 0.0)

    # ------------------------------------------------------------------------------------------------------- results

    @property
    def held_count(self) -> int:
        """Answers that wait for an earlier one."""
        return self._outbox.held_count

    @property
    def result_bytes(self) -> int:
        """Bytes of results that are not committed yet."""
        return self._outbox.held_bytes

    @property
    def late_count(self) -> int:
        """Answers that were released after later ones, and marked so."""
        return self._outbox.late_count

    @property
    def next_deadline_s(self) -> float | None:
        """When ``Tick`` releases held results although an earlier one is missing; None when none will be."""
        return self._outbox.next_deadline_s

    # --------------------------------------------------------------------------------------------------------- check

    def validate(self) -> None:
        """Assert every invariant of the state. The cost grows with the number of runs: for tests and simulations.

        Raises:
            AssertionError: one is broken.
        """
        self._runs.validate()
        for lane in self._lanes.values():
            lane.validate()
        entries = self._runs.entries.values()
        self._outbox.validate(
            ((e.first_seq, e.last_seq) for e in entries if e.state is RunState.HELD),
            ((e.first_seq, e.last_seq) for e in entries if e.state is RunState.RELEASED),
        )
        self._validate_copies()
        whole = sum(self.shares.values())
        assert abs(whole - 1) < 1e-6, f"the shares sum to {whole!r}"

    def _validate_copies(self) -> None:
        """Assert that runs and lanes agree on which run is in which lane."""
        in_runs = {(name, e.first_seq): copy for e in self._runs.entries.values() for name, copy in e.copies.items()}
        in_lanes = {(name, first): copy for name, lane in self._lanes.items() for first, copy in lane.copies.items()}
        assert in_runs == in_lanes, f"runs say they are in {in_runs}, lanes have {in_lanes}"
        for entry in self._runs.entries.values():
            open_in = [name for name, copy in entry.copies.items() if copy.open]
            # An overdue run of a stateful query stays in its lane: it is not asked for elsewhere.
            overdue = self._settings.home_only and entry.lane is not None and entry.copies[entry.lane].tried
            expected = [] if entry.lane is None or overdue else [entry.lane]
            assert open_in == expected, f"{entry} is in {expected}, and open in {open_in}"
            assert entry.lane is None or entry.lane in entry.copies, f"{entry} is not in its lane"
            assert entry.counted_in is None or entry.counted_in in entry.copies, f"{entry} is counted in another lane"
