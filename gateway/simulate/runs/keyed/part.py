"""One part of a simulated divided query: where it is, and what follows it where it will be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import gateway.core.exchange.events as ev
from gateway.core.exchange.instructions import Done, Release
from gateway.query.flow.measures import Measures, Unmeasured
from gateway.query.flow.run import Run
from gateway.query.flow.runlog import KeptRuns
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.enginehosts import Reply, SimulatedEngineHost
from gateway.simulate.runs.keyed.counting import CountedCheckpoint
from gateway.simulate.runs.keyed.partdispatching import EVERYTHING, PartDispatcher, PartsOwner
from gateway.simulate.runs.promises import BrokenPromiseError, promise
from gateway.simulate.runs.stateful.keptstate import Checkpoint, StatefulLane
from gateway.simulate.runs.stateful.simulatedmover import SimulatedMover
from policies.failures.overdue import Patience
from policies.signals import HOME

NEVER_SEQ: Final = 1 << 62


class Follower(PartDispatcher):
    """Repeats in the next place of a part what is done in the present one; its answers count for nothing.

    Attributes:
        trouble: why the part cannot go on there; empty if it can.
    """

    trouble = ""

    def open(self, host: SimulatedEngineHost, checkpoint: CountedCheckpoint) -> None:
        """Open it from a copy of the part's state."""
        self._open_on(host, checkpoint, EVERYTHING, NEVER_SEQ)
        # If the present place lost an answer, the run is not passed on; this host refuses the next one.
        self.engine.on_refused = self._note_refusal

    def _note_refusal(self, why: str) -> None:
        self.trouble = self.trouble or why

    @property
    def lag_runs(self) -> int:
        """How many runs it has not answered; all bytes must be consumed there."""
        under_way = self.exchange.lane(self.place).in_flight_bytes > 0
        return len(self.exchange.held_inputs) or int(under_way)

    def take_lane(self) -> StatefulLane:
        """Return its lane, which it gives up."""
        lane = self.lanes.pop(self.place)
        assert isinstance(lane, StatefulLane), "its query keeps state"
        self._engine = None
        return lane

    def _repeated(self, done: Done[Run]) -> None:
        """See ``PartDispatcher``: that is all that it does."""

    def _released_now(self, release: Release[Reply]) -> None:
        raise BrokenPromiseError(f"{self.name}: {release.first_seq} is released, and was only repeated at {self.place}")

    def _reopen(self) -> None:
        self.trouble = self.trouble or "its runs are not answered there"


class _PartDisk:
    """What of a part survives when the gateway is killed, beside the query's log."""

    def __init__(self) -> None:
        self.checkpoint: Checkpoint = CountedCheckpoint()


class SimulatedPart(PartDispatcher):
    """A part: what it answers counts.

    Args:
        number: see ``PartDispatcher``.
        query: see ``PartDispatcher``.
        measures: see ``PartDispatcher``.
        agenda: time.
        trace: the history.
        on_failed: called with a lane's name when it must be abandoned.
        patience: how long to wait for answers.

    Attributes:
        hosts: the hosts where it can be opened, by name.
        mover: copies its state.
        disk: has its checkpoint at home.
        held: whether none of its runs is dispatched.
    """

    def __init__(
        self,
        number: int,
        query: PartsOwner,
        measures: Measures,
        agenda: Agenda,
        trace: Trace,
        on_failed: Callable[[str], None],
        patience: Patience,
    ) -> None:
        super().__init__(number, query, measures, agenda, trace, on_failed, patience)
        self.hosts: dict[str, SimulatedEngineHost] = {}
        self.disk = _PartDisk()
        self.held = False
        state_bytes = query.options.state_bytes // query.options.parts
        self.mover = SimulatedMover(
            self, query.options, state_bytes, self.hosts, self.disk, agenda, trace, copies_while_held=False
        )
        self._repeating: dict[int, int] = {}
        self._counts_from_seq = 0

    # -------------------------------------------------------------------------------------------- opening and closing

    def open(self, host: SimulatedEngineHost) -> None:
        """Open it from its checkpoint on a host; away from home, keep what is needed to continue at home."""
        checkpoint = self.mover.checkpoint_at(host.name)
        assert isinstance(checkpoint, CountedCheckpoint), "it has state"
        before = self._counts_from_seq = self._query.disk.committed_before
        self._undone, self._undone_events, self._held_events = {}, 0, 0
        self._repeating = {}
        self.held = False
        self.pass_on = None
        self.kept = KeptRuns(stateful=True)
        if host.name != HOME:
            self.kept.keep_from(self.mover.home_seq)
        self._open_on(host, checkpoint, [(0, before - 1)] if before else [], before)
        self.mover.interrupt()
        self.mover.opened()

    def follower(self, on_failed: Callable[[str], None]) -> Follower:
        """Return what can follow it elsewhere."""
        return Follower(self.number, self._query, Unmeasured(), self._agenda, self._trace, on_failed, self._patience)

    def tell_follower(self, follower: Follower) -> None:
        """Let a follower know what the sink has: it need not ask for each run."""
        follower.tell_committed(self._query.disk.committed_before - 1)

    def hold(self) -> None:
        """Dispatch no run from now on."""
        self.held = True
        self._handle(ev.Held(at_s=self._agenda.now_s))

    def resume(self) -> None:
        """Dispatch runs again."""
        self.held = False
        self._handle(ev.Resumed(at_s=self._agenda.now_s))

    def switch_to(self, follower: Follower, began_s: float) -> None:
        """Go on in the lane of a follower, which has answered everything that is done here."""
        place, engine = follower.place, follower.engine
        lane = follower.take_lane()
        for name in tuple(self.lanes):
            self._lose_lane(name, "")
        self.engine.close()
        self.mover.arrived(place, began_s)
        engine.on_refused = None
        self._engine, self.place, self._overdue = engine, place, False
        self._handle(ev.PlaceSet(at_s=self._agenda.now_s, place=place))
        self.set_shares({HOME: 0.0} | {place: 1.0})
        lane.give_to(self)
        self._open_lane(lane, 0)
        self.pass_on = None
        if place == HOME:
            self.kept.keep_from(None)
        else:
            # The checkpoint at home has everything before the last run that was answered there.
            self.mover.home_seq = max(self.mover.home_seq, self.kept.batch_start_seq)
            self.kept.keep_from(self.mover.home_seq)
        self.mover.opened()
        self._query.on_moved()
        self.resume()

    def lose_place(self, reason: str) -> None:
        """Remove the lane of a VM that is gone; the part stays open until the query is opened again."""
        if self.place in self.lanes:
            self._lose_lane(self.place, reason)

    # ---------------------------------------------------------------------------------------------------- the exchange

    def _handle(self, event: ev.ExchangeEvent[Run, Reply]) -> None:
        super()._handle(event)
        self._query.on_handled()

    def offer(self, run: Run) -> None:
        """See ``PartDispatcher``."""
        if run.first_seq >= max(self._resume_seq, self._counts_from_seq):
            self._undone[run.first_seq] = run
            self._undone_events += run.events
            self._witness.logged(run)
        elif run.first_seq >= self._resume_seq:
            self._repeating[run.first_seq] = run.events
        super().offer(run)

    def _repeated(self, done: Done[Run]) -> None:
        for run in done.runs:
            del self._repeating[run.first_seq]
        if done.last_seq < self._query.disk.committed_before:
            self._query.disk.repeated(done.first_seq, done.last_seq)

    def _released_now(self, release: Release[Reply]) -> None:
        first_seq, last_seq = release.first_seq, release.last_seq
        if (release.results.first_seq, release.results.last_seq) != (first_seq, last_seq):
            raise BrokenPromiseError(f"{self.name}: {first_seq}-{last_seq} is released with another run's result")
        self._witness.released(first_seq, last_seq, self._agenda.now_s)
        self._held_events -= release.events
        self._query.on_release(self.number, release)

    def committed(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Note that the sink has the results of these ranges."""
        self._witness.committed(ranges)
        self._handle(ev.Committed(at_s=self._agenda.now_s, ranges=ranges))

    def slot_passed(self) -> None:
        """Note that a slot has ended."""
        self._handle(ev.SlotPassed(at_s=self._agenda.now_s))

    def _reopen(self) -> None:
        self._query.on_overdue()

    # ------------------------------------------------------------------------------------------------ what mover tells

    def killed_at_step(self) -> bool:
        """See ``MoverOwner``."""
        return self._query.killed(self.options.killed_at_step)

    def on_refused(self, vm: str, reason: str) -> None:
        """See ``MoverOwner``."""
        self._trace.note(f"{self.name} does not move to {vm}: {reason}")
        self.hosts.pop(vm, None)
        self.mover.interrupt()
        self._query.on_refused(self.number, vm, reason)

    def on_copied_home(self, resume_seq: int) -> None:
        """See ``MoverOwner``."""
        self.kept.keep_from(resume_seq)
        self._query.on_copied()

    # ------------------------------------------------------------------------------------------------------- promises

    @property
    def _repeating_events(self) -> int:
        return sum(self._repeating.values())

    def check_all(self, *, thorough: bool = False) -> None:
        """Check that each undone event waits or is in the lane of its place, and at times all invariants.

        Raises:
            BrokenPromiseError: an invariant is broken.
        """
        promise(self.lanes.keys() <= {self.place}, f"{self.name}: it is at {self.place}, its lanes are {self.lanes}")
        self._check_undone()
        self._validate(thorough=thorough)

    def check_slot(self) -> None:
        """See ``Witness.check_slot``; also check that no run waits while its place has nothing to do."""
        super().check_slot()
        waits = self.place in self.lanes and self.exchange.waiting_runs and not self.open_runs(self.place)
        promise(self.held or not waits, f"{self.name}: runs wait, and none is open at {self.place}")
