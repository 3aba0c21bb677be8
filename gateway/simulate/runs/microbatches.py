"""A gateway with a micro-batch engine that runs a stateful query: Spark, on a virtual clock.

The gateway's part is the production code or its rules: how runs are cut (``Linger``), how much a lane holds, how many
runs a micro-batch takes, when the sink gets a part, and that a stateful engine continues only when the sink has the
results (decision 0006). Costs are measured: see ``EngineCosts``.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import gateway.core.exchange.events as ev
from engines.simulated.generators import ConstantRate
from engines.simulated.microbatches import Closed, MicroBatchedQuery, ProducedEvents
from engines.simulated.placement import SimulatedVm
from engines.simulated.query import Producer, QueryGraph
from gateway.core.exchange import Exchange, ExchangeSettings
from gateway.core.exchange.instructions import Pack, Release, Send
from gateway.query.flow.delivery import HELD_BYTES_MAX, PART_S
from gateway.query.flow.lane import LaneEvent
from gateway.query.flow.linger import Linger
from gateway.query.flow.run import BATCH_RUNS_MAX, Run
from gateway.simulate.options import Faults, Machines
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.enginehosts import Reply, SimulatedEngineHost, SimulatedLane
from gateway.sources.schedule import Schedule
from infra.link.credit import CREDIT_BYTES
from policies.failures.overdue import Patience
from policies.signals import HOME

_NOTHING = Run(0, 0, None, 0.0, 0).batch  # a simulated run has no rows
_INSTRUCTIONS_PER_MI = 1e6

_Fed = tuple[Run, Callable[[Reply], None]]


@dataclass(frozen=True, slots=True)
class EngineCosts:
    """The costs that are not per event, in seconds.

    Attributes:
        batch_s: of a micro-batch, however small.
        run_s: of each run in it: an input partition of its own.
        between_s: from the report that the sink has its results to the planning of the next.
        commit_s: of the sink and the run log, for a part.
        off_s: standard deviation of a micro-batch's time.
    """

    batch_s: float
    run_s: float
    between_s: float
    commit_s: float
    off_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Cutting:
    """When runs are cut, and the length of slots and of the sink's ticks, as in the gateway's config."""

    linger_s: float = 0.1
    run_events: int = 2000
    slot_s: float = 1.0
    tick_s: float = 0.1


@dataclass(frozen=True, slots=True)
class Visible:
    """A window's results, and when they appeared in the sink."""

    closed: Closed
    at_s: float


class MicroBatchHost(SimulatedEngineHost):
    """An engine host with one stateful query.

    Args:
        query: the query.
        mips: million instructions a second.
        costs: its costs.
        agenda: time.
        answer: called with the windows that a micro-batch closed, when it is done; the host continues at ``committed``.
        due_s: when the event of a seq was due.
        chance: draws the random part of a micro-batch's time.
    """

    def __init__(
        self,
        query: MicroBatchedQuery,
        mips: float,
        costs: EngineCosts,
        agenda: Agenda,
        answer: Callable[[tuple[Closed, ...]], None],
        due_s: Callable[[int], float],
        chance: random.Random,
    ) -> None:
        super().__init__(HOME, Machines(), Faults(), agenda, Trace(agenda), chance)
        self._chance = chance
        self._query = query
        self._mips = mips
        self._costs = costs
        self._time = agenda
        self._answer = answer
        self._due_s = due_s
        self._feed: deque[_Fed] = deque()
        self._busy = False
        self.batches = 0

    def take(
        self,
        run: Run,
        work_s: float,  # noqa: ARG002  # computed here
        on_reply: Callable[[Reply], None],
        begun: Callable[[], None],  # noqa: ARG002  # a run takes no credit here
        aside: Callable[[], None],  # noqa: ARG002  # no row is bad here
    ) -> None:
        """See ``SimulatedEngineHost.take``."""
        self._time.after(self.delay_s, lambda: self._fed(run, on_reply))

    def _fed(self, run: Run, on_reply: Callable[[Reply], None]) -> None:
        self._feed.append((run, on_reply))
        self._plan()

    def committed(self) -> None:
        """Note that the sink has the results of the last micro-batch."""
        self._time.after(self._costs.between_s, self._ready)

    def _ready(self) -> None:
        self._busy = False
        self._plan()

    def _plan(self) -> None:
        if self._busy or not self._feed:
            return
        self._busy = True
        taken = [self._feed.popleft() for _ in range(min(len(self._feed), BATCH_RUNS_MAX))]
        arrivals = [
            ProducedEvents(run.events, self._due_s(run.first_seq), self._due_s(run.last_seq + 1)) for run, _ in taken
        ]
        batch = self._query.batch(arrivals)
        work_s = batch.instructions / (self._mips * _INSTRUCTIONS_PER_MI)
        work_s += self._costs.batch_s + self._costs.run_s * len(taken)
        work_s = max(0.0, work_s + self._chance.gauss(0.0, self._costs.off_s))
        self._time.after(work_s, lambda: self._done(taken, batch.closed, work_s))

    def _done(
        self, taken: list[tuple[Run, Callable[[Reply], None]]], closed: tuple[Closed, ...], work_s: float
    ) -> None:
        self.batches += 1
        self._answer(closed)
        for run, on_reply in taken:
            on_reply(Reply(run.first_seq, run.last_seq, self.batches, work_s))


class Play:
    """One query, home only.

    Args:
        query: a chain as for ``MicroBatchedQuery``, with a uniform producer.
        vm: the private host.
        costs: the costs that are not per event.
        cutting: the config's limits.
        seed: of random draws.

    Attributes:
        visible: the windows whose results the sink has, in order.
    """

    def __init__(self, query: QueryGraph, vm: SimulatedVm, costs: EngineCosts, cutting: Cutting, seed: int = 0) -> None:
        self.visible: list[Visible] = []
        self._agenda = Agenda()
        self._costs, self._cutting = costs, cutting
        self._schedule = Schedule([(1.0, _rate(query))])
        self._linger = Linger(cutting.linger_s, BATCH_RUNS_MAX)
        self._next_seq = 0
        settings = ExchangeSettings(patience=Patience(), home_only=True, flush_s=None, held_bytes_max=HELD_BYTES_MAX)
        self._exchange: Exchange[Run, None] = Exchange(settings)
        self._released: list[tuple[int, int]] = []
        self._outbox: list[tuple[Closed, ...]] = []
        self._part_due_s = PART_S
        self.host = MicroBatchHost(
            MicroBatchedQuery(query),
            vm.mips,
            costs,
            self._agenda,
            self._outbox.append,
            self._schedule.due_s,
            random.Random(seed),  # noqa: S311  # no secret
        )
        self._lane = SimulatedLane(self.host, self, self._agenda)
        self._handle(ev.LaneOpened(at_s=0.0, lane=HOME, credit_bytes=CREDIT_BYTES))

    def run(self, windows: int, until_s: float) -> list[Visible]:
        """Simulate until this many windows are visible, or ``until_s``."""
        self._cut()
        self._slot()
        self._agenda.after(self._cutting.tick_s, self._tick)
        while len(self.visible) < windows and self._agenda.now_s < until_s:
            self._agenda.step()
        return self.visible

    # -------------------------------------------------------------------------------------------------------- ingress

    def _cut(self) -> None:
        """Cut a run that is full or has lingered, as ``Ingress`` does."""
        now_s, first, limit = self._agenda.now_s, self._next_seq, self._cutting.run_events
        rate_per_s = self._exchange.lane(HOME).rate_per_s(now_s)
        linger_s = self._linger.next_s(self._exchange.queued_runs(BATCH_RUNS_MAX), rate_per_s)
        closes_s = min(self._schedule.due_s(first) + linger_s, self._schedule.due_s(first + limit - 1))
        if closes_s > now_s:
            self._agenda.at(closes_s, self._cut)
            return
        events = min(max(1, self._schedule.due_count(now_s) - first), limit)
        self._next_seq += events
        arrival_s = self._schedule.mean_due_s(first, first + events - 1)
        self._linger.cut(events)
        self._handle(ev.RunLogged(at_s=now_s, run=Run(first, first + events - 1, _NOTHING, arrival_s, 0)))
        self._agenda.after(0.0, self._cut)

    def _slot(self) -> None:
        self._handle(ev.SlotPassed(at_s=self._agenda.now_s))
        self._agenda.after(self._cutting.slot_s, self._slot)

    # --------------------------------------------------------------------------------------------------- the exchange

    def _handle(self, event: ev.ExchangeEvent[Run, None]) -> None:
        for what in self._exchange.handle(event):
            match what:
                case Pack() | Send():
                    self._lane.order(what)
                case Release():
                    self._released.append((what.first_seq, what.last_seq))

    def on_event(self, event: LaneEvent) -> None:
        """See ``LaneOwner``."""
        self._handle(event)

    def open_runs(self, lane: str) -> int:
        """See ``LaneOwner``."""
        return self._exchange.lane(lane).open_runs

    def payload_bytes(self, lane: str, run: Run) -> int:  # noqa: ARG002  # it takes no credit
        """See ``LaneOwner``."""
        return 0

    def sends(self, lane: str, run: Run) -> int:
        """See ``LaneOwner``."""
        return self.payload_bytes(lane, run)

    def on_reply(self, lane: str, reply: Reply) -> None:
        """See ``LaneOwner``."""
        self._handle(
            ev.Answered(
                at_s=self._agenda.now_s,
                lane=lane,
                first_seq=reply.first_seq,
                last_seq=reply.last_seq,
                results=None,
                result_bytes=0,
                batch_id=reply.batch_id,
                batch_s=reply.batch_s,
            )
        )

    def work_s(self, run: Run, machines: Machines, lane_runs: int) -> float:  # noqa: ARG002  # a micro-batch's is the host's to say
        """See ``LaneOwner``."""
        return 0.0

    # ------------------------------------------------------------------------------------------------------- delivery

    def _tick(self) -> None:
        """Give the sink a part once one is due, as ``Delivery`` does."""
        if self._outbox and self._agenda.now_s >= self._part_due_s:
            self._agenda.after(self._costs.commit_s, self._commit)
        else:
            self._agenda.after(self._cutting.tick_s, self._tick)

    def _commit(self) -> None:
        now_s = self._agenda.now_s
        self.visible += [Visible(closed, now_s) for batch in self._outbox for closed in batch]
        self._outbox.clear()
        ranges, self._released = tuple(self._released), []
        self._handle(ev.Committed(at_s=now_s, ranges=ranges))
        self._part_due_s = now_s + PART_S
        self.host.committed()
        self._agenda.after(self._cutting.tick_s, self._tick)


def _rate(query: QueryGraph) -> float:
    (name,) = query.named(Producer)
    producer = query.vertices[name]
    assert isinstance(producer, Producer)
    if not isinstance(producer.generator, ConstantRate) or producer.generator.per_s <= 0:
        raise ValueError(f"{name}: only a uniform load can be played in micro-batches")
    return producer.generator.per_s
