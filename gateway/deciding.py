"""Passes events to the scheduler and its commands to the actuator, and logs both."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from gateway.core.decide.scheduler import Scheduler, SchedulerSettings
from gateway.fleet.bootfile import BootFile
from gateway.fleet.fitting import Fitter
from gateway.query.running import RunningQuery
from gateway.views.moneyview import log_bill
from gateway.views.why.commandwords import CommandLines
from gateway.views.why.decisions import DecisionLog
from gateway.views.why.eventlog import EventLog
from infra.clock import Clock
from policies.choose import Policies
from policies.money.ledger import LedgerState
from policies.quota.requests import Allowance
from policies.signals import (
    Ask,
    BootsRestored,
    BudgetFrozen,
    Command,
    Event,
    Fit,
    LedgerRestored,
    QueryOpened,
    QuotaGranted,
    SlotAnswered,
)
from policies.steering import SettingsChanged

_LOG = logging.getLogger(__name__)

MakeEvent = Callable[[str, float], Event]
"""Creates an event from its id and the time."""


class Deciding:
    """The scheduler with its policies and its logs.

    Args:
        settings: the scheduler's settings.
        state_dir: where the logs go.
        clock: time.
        watch: called with each event and the commands that it led to.
        execute: carries out commands, except those to policies, which are carried out here.

    Attributes:
        scheduler: for reading; pass events through ``handle``.
        decisions: the ledger of decisions.
    """

    def __init__(
        self,
        settings: SchedulerSettings,
        state_dir: Path,
        clock: Clock,
        *,
        watch: Callable[[Event, Sequence[Command]], None],
        execute: Callable[[Sequence[Command]], None],
    ) -> None:
        self.scheduler = Scheduler(settings)
        self.decisions = DecisionLog(state_dir / "decisions")
        self._events = EventLog(state_dir / "events", settings)
        self._boots = BootFile(state_dir / "boots.json", settings.boot_s)
        self._policies = Policies(settings.queries, settings.site)
        self._fitter = Fitter(self.handle)
        self._clock = clock
        self._watch = watch
        self._execute = execute
        self._event_ids = count(1)
        self._lines = CommandLines()

    def restore(self, state: LedgerState) -> None:
        """Continue with the spending of an earlier gateway, and with the boots that it saw."""
        self.handle(lambda event_id, at_s: LedgerRestored(event_id=event_id, at_s=at_s, state=state))
        if boots_s := self._boots.read():
            self.handle(lambda event_id, at_s: BootsRestored(event_id=event_id, at_s=at_s, boots_s=boots_s))

    def change(self, settings: SchedulerSettings) -> None:
        """Use other settings for queries, budget and the limit of VMs; call it between two slots only."""
        self.handle(
            lambda event_id, at_s: SettingsChanged(
                event_id=event_id,
                at_s=at_s,
                queries=settings.queries,
                max_vms=settings.max_vms,
                budget=settings.budget,
                sheds=settings.sheds,
                freezes=settings.freezes,
            )
        )
        self._policies.change(settings.queries, settings.site)

    def freeze(self, why: str) -> None:
        """Reserve no more money, because of ``why``; continue if it is empty."""
        self.handle(lambda event_id, at_s: BudgetFrozen(event_id=event_id, at_s=at_s, why=why))

    def grant(self, allowance: Allowance) -> None:
        """Use this part of the quota."""
        self.handle(lambda event_id, at_s: QuotaGranted(event_id=event_id, at_s=at_s, allowance=allowance))

    def opened(self, query: RunningQuery) -> None:
        """Note what is known of a query that was opened."""
        self.handle(
            lambda event_id, at_s: QueryOpened(
                event_id=event_id,
                at_s=at_s,
                query=query.name,
                switchable=query.switchable,
                reason=query.stays_home,
                whole=query.stateful and not query.divided,
                divided=query.divided,
            )
        )

    def handle(self, make_event: MakeEvent) -> None:
        """Pass the scheduler an event between two slots, and carry out its commands."""
        self.decisions.note_commands(self._decide(make_event))

    async def end_slot(self, make_event: MakeEvent, wall_s: float) -> None:
        """Pass the scheduler the end of a slot, ask the policies if it says so, and carry out its commands.

        Other events may happen while the policies work; the next slot must wait.

        Args:
            make_event: makes the ``SlotEnded``.
            wall_s: seconds since 1970.
        """
        commands = self._decide(make_event)
        ask = next((command for command in commands if isinstance(command, Ask)), None)
        if ask is not None:
            turn, answers = ask.turn, await self._fitter.answer(ask, self._policies)
            commands = self._decide(
                lambda event_id, at_s: SlotAnswered(event_id=event_id, at_s=at_s, turn=turn, answers=answers)
            )
        self.decisions.note(self.scheduler.last_decisions, wall_s, commands)
        self._events.write_soon()
        await self._boots.save(self.scheduler.boots_s)

    def _decide(self, make_event: MakeEvent) -> list[Command]:
        event = make_event(f"e{next(self._event_ids)}", self._clock.now())
        self.decisions.note_event(event)
        commands = self.scheduler.handle(event)
        self._events.note(event, commands)
        self._watch(event, commands)
        log_bill(self.scheduler, event)
        for command in commands:
            if said := self._lines.line(command):
                _LOG.info("%s", said)
            if isinstance(command, Fit):
                self._fitter.begin(command)
        self._execute(commands)
        return commands

    async def stop_learning(self) -> None:
        """End trainings that still run."""
        await self._fitter.close()

    async def close(self) -> None:
        """Write the rest of the logs."""
        await self.decisions.close()
        await self._events.close()
