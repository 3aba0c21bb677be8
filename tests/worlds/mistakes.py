"""The mistakes that are put into the core to check that they are found: each replaces one text of a module."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CORE = "gateway.core."
EXCHANGE = CORE + "exchange.exchange"
LANE = CORE + "exchange.lanes.lane"
OUTLET = CORE + "exchange.lanes.outlet"
CREDIT = CORE + "exchange.lanes.credit"
WATCH = CORE + "exchange.lanes.watch"
RATE = CORE + "exchange.lanes.rate"
OUTBOX = CORE + "exchange.outbox"
REORDER = CORE + "exchange.reorder"
ROUTING = CORE + "exchange.routing"
RUNS = CORE + "exchange.runs"
SHARES = CORE + "exchange.shares"
FLEET = "policies.vms.fleet"
ROUTES = CORE + "decide.routes"
STARTS = CORE + "decide.starts"
VMLIFE = CORE + "decide.vmlife"
SCHEDULER = CORE + "decide.scheduler"
LEDGER = "policies.money.ledger"
ENDS = "gateway.query.moving.batchends"
RUN_LOG = "gateway.query.flow.runlog"
PLACING = "policies.switching.placing"
FEED = "engines.streaming.feed"
CHECKPOINTS = "engines.streaming.checkpoints"
JOINT = CORE + "exchange.joint"
TOGETHER = "gateway.query.flow.keyed.together"
SPLIT = "gateway.query.flow.keyed.split"
PART_MOVE = "policies.switching.partmove"


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake.

    Attributes:
        name: its effect.
        module: the module that gets it.
        old: the text there, exactly once.
        new: the text that replaces it.
        check: the check that finds it at the least cost; see ``sabotage.CHECKS``.
        after: the world or life that finds it.
    """

    name: str
    module: str
    old: str
    new: str
    check: str = "lives"
    after: int = 1

    @property
    def checks(self) -> tuple[str, ...]:
        """The checks that are run against it."""
        if self.check in ("moving", "divided"):
            return (self.check,)
        return ("worlds", "lives") if self.module.startswith(CORE + "exchange") else ("worlds", "scheduler", "periods")

    def path(self, root: Path) -> Path:
        """Return the path of the module."""
        return root.joinpath(*self.module.split(".")).with_suffix(".py")

    def applied(self, root: Path) -> str:
        """Return the module's source with the mistake.

        Raises:
            ValueError: the text is not there exactly once.
        """
        source = self.path(root).read_text(encoding="utf-8")
        if (times := source.count(self.old)) != 1:
            raise ValueError(f"{self.name!r}: {self.module} has {times} times {self.old!r}: say anew where it is put")
        return source.replace(self.old, self.new)


MISTAKES = (
    # The worst that hours of killing found (docs/reliability.md), put back.
    Mistake(
        "a batch that runs again as a whole has room for only two runs (a real defect, since fixed)",
        LANE,
        "waited_for = attempt > 0 or first_seq < self._planned_end_seq",
        "waited_for = False",
        check="worlds",
        after=6,
    ),
    Mistake(
        "home's share is not passed on to VMs while home is lost (a real defect, since fixed)",
        SHARES,
        "if HOME not in there and in_cloud > 0:",
        "if HOME not in there and in_cloud > 1:",
        check="worlds",
        after=9,
    ),
    Mistake(
        "runs of a lost lane go home only (a real defect, since fixed)",
        EXCHANGE,
        "home_only = entry.held_run.disordered",
        "home_only = entry.held_run.disordered or entry.move is not None",
        check="worlds",
        after=9,
    ),
    Mistake(
        "a whole query on several VMs starves (a real defect, since fixed)",
        ROUTING,
        "        if self._shares.get(HOME, 0.0) == 0:\n",
        "        if self._shares.get(HOME, 0.0) < 0:\n",
        check="worlds",
        after=9,
    ),
    Mistake(
        "waiting results have no bound (a real defect, since fixed)",
        OUTBOX,
        "if not self.is_full or first_seq < next_seq:",
        "if self.held_bytes >= 0 or first_seq < next_seq:",
        check="worlds",
        after=1,
    ),
    # Runs.
    Mistake(
        "a completion is lost",
        EXCHANGE,
        "runs = tuple(self._complete(lane, entry) for entry in entries)",
        "runs = tuple(self._complete(lane, entry) for entry in entries if entry.first_seq % 97)",
        after=2,
    ),
    Mistake(
        "the results of an answer are dropped",
        OUTBOX,
        "return self._note(self._reorderer.complete(first_seq, last_seq, outcome, now_s))",
        "return self._note(self._reorderer.complete(first_seq, last_seq, outcome, now_s)[:1])",
    ),
    Mistake(
        "results are released twice",
        EXCHANGE,
        "        for each in released:\n            late = each.late\n",
        "        for each in released + released[1:]:\n            late = each.late\n",
    ),
    Mistake(
        "a run ends one seq too early",
        RUNS,
        "at_seq = entry.last_seq + 1",
        "at_seq = entry.last_seq",
        check="worlds",
        after=1,
    ),
    Mistake(
        "the next release is expected one seq too late",
        REORDER,
        "self._horizon = max(self._horizon, last_seq + 1)",
        "self._horizon = max(self._horizon, last_seq + 2)",
    ),
    Mistake(
        "a duplicate is counted as an answer",
        EXCHANGE,
        "counts = not self.is_done(first_seq, last_seq)",
        "counts = True",
        after=2,
    ),
    Mistake(
        "duplicates are not reported",
        EXCHANGE,
        "self._duplicate_count += not counts",
        "self._duplicate_count += counts",
    ),
    Mistake(
        "runs wait in the wrong order",
        RUNS,
        "heapq.heappush(self._waiting, entry.first_seq)",
        "self._waiting.append(entry.first_seq)",
        check="worlds",
        after=7,
    ),
    Mistake(
        "runs of a lost lane are forgotten",
        EXCHANGE,
        "                self._runs.wait(entry)\n                back.append(entry)\n",
        "                back.append(entry)\n",
    ),
    Mistake("a lost lane's counters stay in the runs", EXCHANGE, "            del entry.copies[lane.name]\n", ""),
    Mistake(
        "disordered runs leave home",
        EXCHANGE,
        "home_only = entry.held_run.disordered",
        "home_only = False",
        after=4,
    ),
    Mistake(
        "stateful runs leave home",
        EXCHANGE,
        "        if self._settings.home_only:\n            place",
        "        if self._settings.home_only and entry.tried:\n            place",
        after=11,
    ),
    # Lanes.
    Mistake(
        "credit is ignored",
        CREDIT,
        "if self.in_flight_bytes and payload_bytes > self.available_bytes:",
        "if payload_bytes < 0:",
        after=15,
    ),
    Mistake(
        "credit is returned twice",
        CREDIT,
        "self.in_flight_bytes -= consumed_bytes",
        "self.in_flight_bytes -= min(self.in_flight_bytes, 2 * consumed_bytes)",
        after=2,
    ),
    Mistake(
        "credit is never returned",
        EXCHANGE,
        "lane.outlet.credit.give(event.consumed_bytes)",
        "pass",
        check="worlds",
        after=21,
    ),
    Mistake(
        "a payload larger than the window is never sent",
        CREDIT,
        "if self.in_flight_bytes and payload_bytes > self.available_bytes:",
        "if payload_bytes > self.available_bytes:",
        after=10,
    ),
    Mistake(
        "a draining lane gets runs", LANE, "        if self.draining:\n            return False\n", "", check="tests"
    ),
    Mistake(
        "LaneDraining is ignored",
        EXCHANGE,
        "                lane.draining = True\n",
        "                pass\n",
        check="tests",
    ),
    Mistake(
        "shares of a lost lane are kept", SHARES, "if lane in there and lane != HOME}", "if lane != HOME}", after=8
    ),
    Mistake(
        "new shares are ignored",
        EXCHANGE,
        "                self._named = dict(event.shares)\n",
        "                pass\n",
        check="worlds",
        after=8,
    ),
    Mistake(
        "Held is ignored",
        EXCHANGE,
        "            case Held():\n                self._held = True\n",
        "            case Held():\n                pass\n",
        check="tests",
    ),
    Mistake(
        "a lane may take all waiting runs",
        LANE,
        "events < self.rate.per_s(now_s) * HORIZON_S",
        "events >= 0",
        check="tests",
    ),
    Mistake(
        "isolating runs take room",
        LANE,
        "if self.working_runs < LEAST_RUNS:",
        "if self.open_runs < LEAST_RUNS:",
        check="worlds",
        after=10,
    ),
    Mistake(
        "an isolating run is overdue",
        LANE,
        "        copy.isolating = True\n        self._sent[_doublings(copy)].pop(copy.first_seq, None)\n",
        "        copy.isolating = True\n",
        after=2,
    ),
    Mistake(
        "a rate never fades",
        RATE,
        "        self._served_events *= RATE_MEMORY\n        self._busy_s *= RATE_MEMORY\n",
        "",
        check="tests",
    ),
    Mistake(
        "a run that was dropped is sent nevertheless",
        OUTLET,
        "        self._queue.pop(first_seq, None)\n        out = self._outgoing\n",
        "        out = self._outgoing\n",
        after=2,
    ),
    # Time.
    Mistake("overdue runs are never detected", LANE, "> limit_s:", "> 1e9 * limit_s:", check="tests"),
    Mistake(
        "overdue runs are not dispatched again",
        EXCHANGE,
        "            self._runs.wait(entry)\n            self._out.append(AskedAgain(lane.name, copy.first_seq))",
        "            self._out.append(AskedAgain(lane.name, copy.first_seq))",
        after=2,
    ),
    Mistake(
        "the lanes in which a run was overdue are forgotten", LANE, "                first.tried = True\n", "", after=38
    ),
    Mistake(
        "an overdue run of a stateful query is not reported",
        EXCHANGE,
        "if late and silence_s is None and self._settings.home_only:",
        "if False:",
        check="worlds",
        after=6,
    ),
    Mistake(
        "a lane that stays silent is never given up",
        WATCH,
        "return silent_s if silent_s > run_s * self._patience.silences else None",
        "return None",
        check="worlds",
        after=3,
    ),
    Mistake(
        "late results are not marked",
        REORDER,
        "return [self._release(first_seq, last_seq, item, late=True)]",
        "return [self._release(first_seq, last_seq, item, late=False)]",
        after=6,
    ),
    Mistake(
        "the deadline of a gap is ignored",
        REORDER,
        "if self._flush_s is None or not self._held:",
        "if self._flush_s is not None or not self._held:",
        after=3,
    ),
    Mistake(
        "a gap is not waited for",
        REORDER,
        "        while self._held and self._held[0][0] == self._next_seq:\n",
        "        while self._held and self._held[0][0] >= self._next_seq:\n",
    ),
    Mistake("a commit frees nothing", OUTBOX, "self.held_bytes -= result_bytes", "pass"),
    Mistake(
        "committed runs are kept",
        EXCHANGE,
        "                    self._runs.forget(first_seq, last_seq)\n",
        "                    pass\n",
    ),
    # Decisions.
    Mistake(
        "there are more VMs than max_vms",
        STARTS,
        "if len(self._fleet.live) >= self.max_vms:",
        "if len(self._fleet.live) > self.max_vms:",
        check="worlds",
        after=4,
    ),
    Mistake(
        "a VM is not terminated before its next period",
        FLEET,
        "- (1 + _LATE) * self._slot_s\n",
        "+ 30 * self._slot_s\n",
        check="periods",
    ),
    Mistake(
        "a VM is kept although no query wants it",
        VMLIFE,
        "            if paused or self._demand.keeps(name, others, machine.block_raw_bytes[name], event.at_s)\n",
        "",
        check="periods",
    ),
    Mistake(
        "the next period is reserved after it began",
        VMLIFE,
        "if not self._fleet.decision_is_due(machine, event.at_s, drain_s):",
        "if not self._fleet.decision_is_due(machine, event.at_s - 4 * self._slot_s, drain_s):",
        check="periods",
    ),
    Mistake(
        "the next period is not reserved at all",
        FLEET,
        "if not payers or not self._reserve(machine, both_usd, machine.block_end_s, end_s):",
        "if not payers:",
        check="periods",
    ),
    Mistake(
        "a VM is launched without money",
        FLEET,
        "if not payers or not self._reserve(machine, usd, event.at_s, event.at_s + block_s):",
        "if not payers:",
        check="periods",
        after=5,
    ),
    Mistake(
        "the budget is not checked",
        LEDGER,
        "if new and (self.frozen or math.fsum(part.usd for part in new) > self.left_usd(at_s) + _ROUNDING_USD):",
        "if new and self.frozen:",
        check="periods",
        after=5,
    ),
    Mistake(
        "a share goes to a VM that is not ready",
        FLEET,
        "if m.state in READY_STATES)",
        "if m.state in WANTED_STATES)",
        check="periods",
    ),
    Mistake(
        "a VM that was lost keeps its shares",
        SCHEDULER,
        "return [*self._routes.leave_unready(event, why), *commands]\n\n    def _on_slot",
        "return commands\n\n    def _on_slot",
        check="periods",
    ),
    Mistake(
        "a VM that failed is not terminated",
        VMLIFE,
        "if machine.state in (VmState.ENDING, VmState.FAILED, VmState.LOST):",
        "if machine.state in (VmState.ENDING, VmState.LOST):",
        check="periods",
    ),
    Mistake(
        "a VM that is never ready is not given up",
        VMLIFE,
        "waited_s > self._patience_s:",
        "waited_s > 1e9 * self._patience_s:",
        check="periods",
    ),
    Mistake(
        "a gateway that stops keeps its VMs",
        VMLIFE,
        "        return [self._stop(machine, event, why) for machine in wanted]",
        "        return []",
        check="periods",
    ),
    # A query with state that moves.
    Mistake(
        "the runs of a query with state go home, wherever it is",
        EXCHANGE,
        "place = self._settings.place",
        "place = HOME",
        check="moving",
        after=25,
    ),
    Mistake(
        "the end of a micro-batch is not noted before the sink has its results",
        ENDS,
        'return b"".join(b"%d\\n" % end for end in ends)',
        'return b"".join(b"%d\\n" % end for end in list(ends)[:-1])',
        check="moving",
        after=25,
    ),
    Mistake(
        "a copy of the checkpoint at home forgets the end of a micro-batch that it does not have",
        ENDS,
        "for end in ends_in(content) if end > seq)",
        "for end in ends_in(content) if end > seq)[1:]",
        check="moving",
        after=115,
    ),
    Mistake(
        "the next end is written behind a line that a crash cut off",
        ENDS,
        'return content.rfind(b"\\n") + 1',
        "return len(content)",
        check="moving",
        after=95,
    ),
    Mistake(
        "micro-batches that are repeated end anywhere",
        FEED,
        "deque(end for end in sorted(ends) if end > first)",
        "deque(end for end in sorted(ends) if end < first)",
        check="moving",
        after=45,
    ),
    Mistake(
        "only the planned micro-batch gets all its runs, not those that are repeated after it",
        CHECKPOINTS,
        "return max(self.resume_end_seq, *batch_ends, 0)",
        "return self.resume_end_seq",
        check="moving",
        after=115,
    ),
    Mistake(
        "the run log forgets the runs of a query on a VM as soon as they are committed",
        RUN_LOG,
        "if self._kept_from_seq is not None:",
        "if self._kept_from_seq is not None and watermark < 0:",
        check="moving",
        after=25,
    ),
    Mistake(
        "the run log forgets the last micro-batch, which may have to run again",
        RUN_LOG,
        "return min(watermark, self._batch_start_seq) if self._stateful else watermark",
        "return watermark",
        check="moving",
        after=65,
    ),
    Mistake(
        "a query whose VM is lost stays there",
        PLACING,
        "if place != HOME and place not in present:",
        "if place != HOME and place not in present and copied_ahead:",
        check="moving",
        after=35,
    ),
    # A query that is divided by its keys, whose parts move.
    Mistake(
        "the results of a divided query are released before its last part has answered",
        JOINT,
        "        self._parts = parts\n",
        "        self._parts = parts - 1\n",
        check="divided",
    ),
    Mistake(
        "micro-batches of parts that are repeated end anywhere",
        TOGETHER,
        "Groups((*division.batch_ends, *division.resume_seqs))",
        "Groups(division.resume_seqs)",
        check="divided",
    ),
    Mistake(
        "ends of micro-batches that home lacks are forgotten when parts are opened again (a real defect, since fixed)",
        ENDS,
        "min(resume_seq if place == HOME else min(resume_seq, home_seq) for place",
        "min(resume_seq for place",
        check="divided",
        after=51,
    ),
    Mistake(
        "a part goes from one VM to another without its state (a real defect, since fixed)",
        PLACING,
        "return target if place in (HOME, target) else HOME",
        "return target",
        check="divided",
        after=7,
    ),
    Mistake(
        "a part that waits for another one is overdue (a real defect, since fixed)",
        EXCHANGE,
        "waits = self._settings.home_only and self._outbox.uncommitted_count > 0",
        "waits = False",
        check="divided",
        after=30,
    ),
    Mistake(
        "a part goes on in its next place one run too early",
        PART_MOVE,
        "        if not lag_runs:\n",
        "        if lag_runs <= 1:\n",
        check="divided",
    ),
    Mistake(
        "after a move the runs of a part still go to the place that it has left",
        EXCHANGE,
        "self._settings = replace(self._settings, place=event.place)",
        "pass",
        check="divided",
    ),
    Mistake(
        "a part gets no heartbeat",
        SPLIT,
        "newest[part_of[newest] != part]",
        "newest[:0]",
        check="divided",
    ),
)
