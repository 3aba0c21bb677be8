"""The event logs of what is simulated, as a gateway writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engines.simulated.events import EventSet
from engines.simulated.metrics import GraphsSettings, MetricsEntry
from gateway.core.decide.scheduler import Scheduler, SchedulerSettings
from gateway.views.why.eventlog import LOG_BYTES, SimulatedLog
from policies.signals import Command, Event


class NotEmptyError(ValueError):
    """The folder for event logs has something in it already."""


class LoggedScheduler(Scheduler):
    """A scheduler that passes on each event and the commands that it led to.

    Args:
        settings: as for any scheduler.
        note: called with both.
    """

    def __init__(self, settings: SchedulerSettings, note: Callable[[Event, list[Command]], None]) -> None:
        super().__init__(settings)
        self._note = note

    def handle(self, event: Event) -> list[Command]:
        """See ``Scheduler``."""
        commands = super().handle(event)
        self._note(event, commands)
        return commands


class LoggedEntries:
    """Writes the entries of simulated graphs to a log, as a calculator of a ``Simulation``."""

    def __init__(self, log: SimulatedLog) -> None:
        self._log = log

    def observe(self, entry: MetricsEntry, events: EventSet) -> None:  # noqa: ARG002
        """See ``MetricCalculator``."""
        self._log.note(entry)


class EventLogs:
    """Where the event logs of a simulation go.

    Args:
        folder: of the logs; none are written without one.
        warn: called with a text if the beginning of a log was removed since the log is too long.

    Raises:
        NotEmptyError: there is something in the folder, which may be a gateway's log.
        OSError: the folder cannot be read.
    """

    def __init__(self, folder: Path | None = None, warn: Callable[[str], None] = lambda _: None) -> None:
        if folder is not None and folder.exists() and any(folder.iterdir()):
            raise NotEmptyError(f"--events: {folder} is not empty: give a new folder")
        self._folder = folder
        self._warn = warn

    @contextmanager
    def scheduler_of(self, name: str) -> Iterator[Callable[[SchedulerSettings], Scheduler]]:
        """Make the scheduler of one simulated gateway; its log is a folder with this name.

        Raises:
            OSError: the log cannot be written.
        """
        if self._folder is None:
            yield Scheduler
            return
        folder, logs = self._folder / name.replace(" ", "-"), list[SimulatedLog]()

        def make(settings: SchedulerSettings) -> Scheduler:
            logs.append(SimulatedLog(folder, settings))
            return LoggedScheduler(settings, logs[-1].note)

        try:
            yield make
        finally:
            for log in logs:
                self._close(log, folder)

    @contextmanager
    def entries_of(self, settings: GraphsSettings) -> Iterator[list[LoggedEntries]]:
        """Make the calculator that logs simulated graphs, if there is a log.

        Raises:
            OSError: the log cannot be written.
        """
        if self._folder is None:
            yield []
            return
        log = SimulatedLog(self._folder, settings)
        try:
            yield [LoggedEntries(log)]
        finally:
            self._close(log, self._folder)

    def _close(self, log: SimulatedLog, folder: Path) -> None:
        if not log.close():
            self._warn(f"{folder}: the log was longer than {LOG_BYTES // 1_000_000} MB, and its beginning was removed")


NO_LOGS = EventLogs()
"""Nothing is written."""
