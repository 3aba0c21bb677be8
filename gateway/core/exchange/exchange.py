"""The exchange: it owns each run of one query from logged to committed. Events in, instructions out. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from gateway.core.exchange.entry import Copy, Move, R, RunEntry, RunState
from gateway.core.exchange.events import (
    A,
    Answered,
    Committed,
    Credited,
    ExchangeEvent,
    Held,
    Isolating,
    LaneDraining,
    LaneLost,
    LaneOpened,
    Packed,
    PlaceSet,
    ResultsBounded,
    Resumed,
    RunLogged,
    Sent,
    SharesSet,
    SlotPassed,
    Tick,
)
from gateway.core.exchange.instructions import (
    AskedAgain,
    Dispatched,
    Done,
    FailLane,
    Instruction,
    Moved,
    Pack,
    Release,
    Reopen,
    RunRecalled,
    Send,
)
from gateway.core.exchange.lanes.lane import LaneState
from gateway.core.exchange.lanes.outlet import Phase
from gateway.core.exchange.lanes.recalls import HeldPatience
from gateway.core.exchange.outbox import Outcome
from gateway.core.exchange.reorder import Released
from gateway.core.exchange.settings import ExchangeSettings
from gateway.core.exchange.shares import check_shares, shares_of
from gateway.core.exchange.views import ExchangeViews
from policies.signals import HOME


class Exchange(ExchangeViews[R, A]):
    """Dispatches the runs of one query to lanes, takes their answers, and releases results in order.

    Runs are dispatched strictly in order of seq: if the lowest waiting run finds no lane, no later run is dispatched.
    The first answer for a run counts. It has no clock: its time is that of the last event, and never goes back.

    Args:
        settings: its settings.
        committed: the closed ranges of seq that the sink has (from an earlier gateway).
    """

    def __init__(self, settings: ExchangeSettings, *, committed: Iterable[tuple[int, int]] = ()) -> None:
        super().__init__(settings, committed=committed)
        self._named: dict[str, float] = {HOME: 1.0}
        self._out: list[Instruction[R, A]] = []
        self._held_patience = HeldPatience()

    def handle(self, event: ExchangeEvent[R, A]) -> list[Instruction[R, A]]:
        """Take an event; return the instructions to carry out, in this order.

        Raises:
            ValueError: the event is impossible, for instance an answer to a run that was not dispatched. Nothing has
            changed.
        """
        if event.at_s > self._now_s:
            self._now_s = event.at_s
        self._apply(event)
        waits = self._settings.home_only and self._outbox.uncommitted_count > 0
        for lane in self._lanes.values():
            lane.see_sink(self._now_s, waits=waits)
            self._advance(lane)
        self._recall()
        self._dispatch()
        out, self._out = self._out, []
        return out

    def _apply(self, event: ExchangeEvent[R, A]) -> None:
        match event:
            case RunLogged():
                self._runs.add(event.run).note(self._now_s, "was logged")
            case LaneOpened():
                self._open_lane(event)
            case LaneLost():
                self._lose_lane(event)
            case SharesSet():
                check_shares(event.shares)
                self._named = dict(event.shares)
                self._follow_shares()
            case Held():
                self._held = True
            case Resumed():
                self._held = False
            case PlaceSet():
                self._settings = replace(self._settings, place=event.place)
            case ResultsBounded():
                if event.bound_bytes < 1:
                    raise ValueError(f"a query without results must be able to go on: {event}")
                self._outbox.bound_bytes = event.bound_bytes
            case Committed():
                for first_seq, last_seq in self._outbox.commit(event.ranges):
                    self._runs.forget(first_seq, last_seq)
            case Tick():
                self._check_time()
            case SlotPassed():
                for lane in self._lanes.values():
                    lane.rate.fade(self._now_s)
            case LaneDraining() | Packed() | Sent() | Isolating() | Answered() | Credited():
                if event.lane in self._lanes:
                    self._on_lane_event(self._lanes[event.lane], event)
            case _:
                assert_never(event)

    def _on_lane_event(
        self, lane: LaneState, event: LaneDraining | Packed | Sent | Isolating | Answered[A] | Credited
    ) -> None:
        """Take an event of an open lane."""
        match event:
            case LaneDraining():
                lane.draining = True
                self._follow_shares()
            case Packed():
                self._packed(lane, event)
            case Sent():
                self._sent(lane, event)
            case Isolating():
                self._set_aside(lane, event.first_seq)
            case Answered():
                self._answered(lane, event)
            case Credited():
                lane.outlet.credit.give(event.consumed_bytes)

    # -------------------------------------------------------------------------------------------------------- lanes

    def _open_lane(self, event: LaneOpened) -> None:
        if event.lane in self._lanes:
            raise ValueError(f"lane {event.lane} is open already: it has to be lost first")
        patience, in_order = self._settings.patience, self._settings.home_only
        self._lanes[event.lane] = LaneState(
            event.lane, event.credit_bytes, event.planned_end_seq, patience, in_order=in_order
        )
        self._follow_shares()

    def _lose_lane(self, event: LaneLost) -> None:
        lane = self._lanes.pop(event.lane, None)
        if lane is None:
            return
        back: list[RunEntry[R]] = []
        for first_seq in lane.copies:
            entry = self._runs.entries[first_seq]
            del entry.copies[lane.name]
            if entry.counted_in == lane.name:
                entry.counted_in = None
            if entry.lane == lane.name:
                entry.note(self._now_s, "waits again: lane {} was lost", lane.name)
                self._runs.wait(entry)
                back.append(entry)
        if event.reason:
            lost_s = self._now_s if event.lost_s is None else event.lost_s
            move = Move(lane.name, event.reason, lost_s, runs=len(back), left=len(back))
            for entry in back:
                entry.move = move
            self._see_moved(move)
        self._follow_shares()

    def _follow_shares(self) -> None:
        self._router.set_shares(shares_of(self._named, self._taking))

    @property
    def _taking(self) -> set[str]:
        return {name for name, lane in self._lanes.items() if not lane.draining}

    def _see_moved(self, move: Move) -> None:
        """Report a lost lane once none of its runs waits for another lane."""
        if not move.left:
            first_s = self._now_s if move.first_s is None else move.first_s
            self._out.append(Moved(move.lane, move.reason, move.runs, move.lost_s, first_s, self._now_s))

    # ----------------------------------------------------------------------------------------------------- dispatch

    def _dispatch(self) -> None:
        """Dispatch waiting runs to lanes that have room, in order of seq."""
        while (found := self._next_dispatch()) is not None:
            entry, lane = found
            self._runs.open(entry, lane.name)
            copy = entry.copies.setdefault(lane.name, Copy(entry.first_seq, entry.events))
            lane.put(copy, entry.attempt, self._now_s)
            self._router.dispatched(lane.name, entry.events)
            entry.note(self._now_s, "was dispatched to lane {}, attempt {}", lane.name, entry.attempt)
            if entry.move is not None and entry.move.first_s is None:
                entry.move.first_s = self._now_s
            self._leave_move(entry)
            self._advance(lane)

    def _next_dispatch(self) -> tuple[RunEntry[R], LaneState] | None:
        """Return the lowest waiting run and its lane, if it may be dispatched now."""
        entry = None if self._held else self._runs.next_waiting()
        if entry is None or not self._outbox.takes(entry.first_seq):
            return None
        first_seq, attempt, now_s = entry.first_seq, entry.attempt, self._now_s
        with_room = {name for name, lane in self._lanes.items() if lane.takes(first_seq, attempt, now_s)}
        if self._home_helps and not entry.tried:
            with_room -= {name for name in with_room if self._lanes[name].recalls.pause_until_s > now_s}
        if not with_room:
            return None
        if self._settings.home_only:
            place = self._settings.place
            return (entry, self._lanes[place]) if place in with_room else None
        tried = entry.tried
        home_only = entry.held_run.disordered or (entry.recalled and HOME in self._taking - tried)
        if not tried:
            name = self._router.pick(entry.events, with_room, home_only=home_only)
        else:
            # It does not wait for a home that is lost while it may be sent again to the lane in which it is overdue.
            away = {HOME} - self._taking
            name = self._router.pick_again(entry.events, with_room, tried | away, home_only=home_only)
        return None if name is None else (entry, self._lanes[name])

    @property
    def _home_helps(self) -> bool:
        """Whether home takes what cloud lanes do not; a query that was moved as a whole has nothing there."""
        return HOME in self._taking and self._router.shares.get(HOME, 0.0) > 0

    def _recall(self) -> None:
        """Let home do the run in a cloud lane that results wait for, if they wait longer than events do at home.

        Else a slow link or a slow VM would make all later results wait, and if results take all the room, home too.
        """
        held_s = self._outbox.held_for_s(self._now_s) if self._home_helps and not self._held else None
        entry = None if held_s is None else self._runs.entries.get(self._outbox.waits_for_seq)
        if held_s is None or entry is None or entry.lane is None or entry.lane == HOME:
            return
        home, lane, copy = self._lanes[HOME], self._lanes[entry.lane], entry.copies[entry.lane]
        stands = self._outbox.is_full and not home.open_runs
        too_long = self._held_patience.ends(held_s, home.watch.usual_s)
        if (stands or too_long) and copy.open and not copy.isolating and not lane.outlet.packs(entry.first_seq):
            entry.recalled = True
            pause_s = lane.recall(copy, self._now_s)
            entry.note(self._now_s, "was recalled from lane {}, since results wait for it", lane.name)
            self._runs.wait(entry)
            self._out.append(RunRecalled(lane.name, entry.first_seq, self._now_s - copy.put_at_s, pause_s))

    def _leave_move(self, entry: RunEntry[R]) -> None:
        move, entry.move = entry.move, None
        if move is not None:
            move.left -= 1
            self._see_moved(move)

    def _advance(self, lane: LaneState) -> None:
        """Let the next run of a lane go as far as it can without the caller."""
        outlet = lane.outlet
        if outlet.empty:
            return
        if (first_seq := outlet.begin_packing()) is not None:
            entry = self._runs.entries[first_seq]
            self._out.append(Pack(lane.name, entry.held_run, entry.attempt))
        elif (first_seq := outlet.begin_sending()) is not None:
            self._out.append(Send(lane.name, first_seq))

    def _packed(self, lane: LaneState, event: Packed) -> None:
        lane.outlet.check(event.first_seq, Phase.PACKING)
        if min(event.payload_bytes, event.raw_bytes, event.rows) < 0:
            raise ValueError(f"run {event.first_seq} cannot have a negative size: {event}")
        copy = lane.copies.get(event.first_seq)
        if copy is None:  # another lane has answered it
            lane.outlet.passed()
        else:
            entry = self._runs.entries[event.first_seq]
            entry.counted_in = lane.name
            sent_bytes = event.payload_bytes if event.rows else 0
            self._out.append(Dispatched(lane.name, entry.held_run, event.raw_bytes, sent_bytes))
            if event.rows:
                lane.outlet.packed(event.payload_bytes)
            else:
                copy.empty = True
                lane.outlet.passed()
                entry.note(self._now_s, "has no row that lane {} needs", lane.name)

    def _sent(self, lane: LaneState, event: Sent) -> None:
        lane.outlet.check(event.first_seq, Phase.SENDING)
        lane.outlet.passed()
        copy = lane.copies.get(event.first_seq)
        if copy is not None:
            self._runs.entries[event.first_seq].note(self._now_s, "was sent to lane {}", lane.name)
            # The host may have reported already that it looks for bad rows in it.
            if copy.open and not copy.isolating:
                lane.sent(copy, self._now_s, event.took_s)

    # ------------------------------------------------------------------------------------------------------ answers

    def _set_aside(self, lane: LaneState, first_seq: int) -> None:
        copy = lane.copies.get(first_seq)
        if copy is not None and copy.open and not copy.isolating:  # else it was dispatched elsewhere, or is done
            lane.set_aside(copy, self._now_s)
            self._runs.entries[first_seq].note(self._now_s, "has bad rows, which lane {} looks for", lane.name)

    def _answered(self, lane: LaneState, event: Answered[A]) -> None:
        first_seq, last_seq = event.first_seq, event.last_seq
        counts = not self.is_done(first_seq, last_seq)
        entries = self._entries_of(lane, event) if counts else self._logged_again(lane, first_seq, last_seq)
        lane.answered(lane.copies.get(first_seq), self._now_s)
        isolated = tuple(entry.first_seq for entry in entries if entry.isolating)
        runs = tuple(self._complete(lane, entry) for entry in entries)
        self._duplicate_count += not counts
        self._out.append(Done(lane.name, first_seq, last_seq, runs, counts, isolated, event.batch_id, event.batch_s))
        if counts:
            events = sum(run.events for run in runs)
            # A part of a run may have no event.
            arrival_s = sum(run.arrival_s * run.events for run in runs) / events if events else runs[0].arrival_s
            if lane.name == HOME:
                self._held_patience.see_home(self._now_s - arrival_s)
            outcome = Outcome(event.results, event.result_bytes, events, arrival_s)
            self._release(self._outbox.complete(first_seq, last_seq, outcome, self._now_s))

    def _entries_of(self, lane: LaneState, event: Answered[A]) -> list[RunEntry[R]]:
        """Return the runs that an answer belongs to.

        Raises:
            ValueError: they are not whole runs that were dispatched to this lane, or some of them are done.
        """
        first_seq, last_seq = event.first_seq, event.last_seq
        entries = self._runs.asked(lane.name, first_seq, last_seq)
        if not entries or self._runs.done.overlaps(first_seq, last_seq):
            raise ValueError(f"lane {lane.name} answered {first_seq}-{last_seq}, which are no runs that are open there")
        if event.result_bytes < 0:
            raise ValueError(f"lane {lane.name} answered {first_seq}-{last_seq} with {event.result_bytes} bytes")
        return entries

    def _logged_again(self, lane: LaneState, first_seq: int, last_seq: int) -> list[RunEntry[R]]:
        """Return the runs of a range that are in a lane although they were done before they were logged."""
        entries = (self._runs.entries[at_seq] for at_seq in sorted(lane.copies))
        return [entry for entry in entries if first_seq <= entry.first_seq and entry.last_seq <= last_seq]

    def _complete(self, lane: LaneState, entry: RunEntry[R]) -> R:
        """Remove an answered run from wherever it is."""
        entry.note(self._now_s, "was answered by lane {}", lane.name)
        for name, copy in entry.copies.items():
            other = self._lanes[name]
            other.drop(copy, self._now_s, served=other is lane)
        self._leave_move(entry)
        return self._runs.complete(entry)

    def _release(self, released: list[Released[Outcome[A]]]) -> None:
        for each in released:
            late = each.late
            for entry in self._runs.between(each.first_seq, each.last_seq):
                entry.state = RunState.RELEASED
                entry.note(self._now_s, "was released late" if late else "was released")
            item = each.item
            self._out.append(Release(each.first_seq, each.last_seq, item.results, item.events, item.arrival_s, late))

    # --------------------------------------------------------------------------------------------------------- time

    def _check_time(self) -> None:
        for lane in self._lanes.values():
            # Without its overdue runs a lane may have no work left: then it does not count as silent any more.
            silence_s = lane.silence_s(self._now_s)
            late = lane.see_overdue(self._now_s)
            if silence_s is not None and not lane.given_up:
                lane.given_up = True
                self._out.append(FailLane(lane.name, silence_s))
            for copy in late:
                self._check_overdue(lane, copy)
            if late and silence_s is None and self._settings.home_only:
                self._out.append(Reopen(late[0].first_seq))
        self._release(self._outbox.flush(self._now_s))

    def _check_overdue(self, lane: LaneState, copy: Copy) -> None:
        entry = self._runs.entries[copy.first_seq]
        entry.note(self._now_s, "is overdue in lane {}", lane.name)
        if not self._settings.home_only:
            self._runs.wait(entry)
            self._out.append(AskedAgain(lane.name, copy.first_seq))

    def validate(self) -> None:
        """See ``ExchangeViews.validate``; also check that the lowest waiting run was dispatched if possible."""
        super().validate()
        assert not self._out, "instructions are left over"
        found = self._next_dispatch()
        assert found is None, f"run {found and found[0].first_seq} could go to a lane, and waits"
        assert self._router.shares == shares_of(self._named, self._taking), "the shares are not those of the lanes"
