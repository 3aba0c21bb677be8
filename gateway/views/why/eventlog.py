"""The event log: each event of the scheduler with its commands, as JSON lines in ``state_dir/events``.

A gateway's log begins in a new file with the scheduler's settings. Each further line is an event and the commands that
it led to, numbered from 1. These two determine the scheduler, so a new one that gets the same events must return the
same commands. A gateway never reads the log, so it may be removed at any time.

Simulations write the same log (``SimulatedLog``). That of simulated graphs begins with their settings; its events are
the entries of CEPSim's log, and there are no commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from engines.simulated.metrics import GraphsSettings, MetricsEntry
from gateway.core.decide.scheduler import Scheduler, SchedulerSettings
from gateway.views.why.linewriter import LineWriter
from gateway.views.why.plainjson import dumps, loads
from infra.statefiles import LineFiles, numbered_files
from policies.signals import Command, Event
from policies.vms.vm import ImpossibleTransitionError

FILE_BYTES = 4_000_000
"""A file is closed once it has this size."""

LOG_BYTES = 64_000_000
"""The oldest files are removed while the total size is larger than this."""

_FORMAT = 1
_BUFFER_BYTES = 1_000_000
_SHOWN = 300
"""At most this many characters of a value are shown."""


_Part = TypeVar("_Part")


class LogError(Exception):
    """A file is not a log of events that can be replayed; the message says why and what to do."""


LogSettings = SchedulerSettings | GraphsSettings
"""What a log begins with."""


class LoggedEvent(NamedTuple):
    """An event, and the commands that it led to as JSON texts."""

    event: Event | MetricsEntry
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay.

    Attributes:
        events: how many events the scheduler got.
        commands: how many commands it returned.
        difference: the first difference from the log, in words; empty if there is none.
    """

    events: int
    commands: int
    difference: str = ""


class EventLog:
    """Writes the log in the background.

    Args:
        folder: of the log.
        settings: the scheduler's.
        file_bytes: a file is closed at this size.
    """

    def __init__(self, folder: Path, settings: SchedulerSettings, file_bytes: int = FILE_BYTES) -> None:
        self._writer = LineWriter(folder, "events", encode=_line, limits=(file_bytes, LOG_BYTES))
        self._writer.add(_first(settings))
        self._events = 0

    def note(self, event: Event, commands: Sequence[Command]) -> None:
        """Record an event of the scheduler and its commands."""
        self._events += 1
        self._writer.add(_record(self._events, event, commands))

    def write_soon(self) -> None:
        """Begin to write the events so far."""
        self._writer.write_soon()

    async def close(self) -> None:
        """Write the rest."""
        await self._writer.close()


class SimulatedLog:
    """Writes the log of a simulation, where nothing else has to go on meanwhile.

    Args:
        folder: of the log; it has no log yet.
        settings: of the simulation.
        limits: the size at which a file is closed, and the total size above which the oldest is removed.
    """

    def __init__(self, folder: Path, settings: LogSettings, limits: tuple[int, int] = (FILE_BYTES, LOG_BYTES)) -> None:
        self._folder = folder
        self._files = LineFiles(folder, limits)
        self._buffer_bytes = min(_BUFFER_BYTES, limits[0])
        self._waiting = bytearray(_line(_first(settings)) + b"\n")
        self._events = 0

    def note(self, event: Event | MetricsEntry, commands: Sequence[Command] = ()) -> None:
        """Record an event, and the commands that it led to.

        Raises:
            OSError: the disk fails.
        """
        self._events += 1
        self._waiting += _line(_record(self._events, event, commands)) + b"\n"
        if len(self._waiting) >= self._buffer_bytes:
            self._write()

    def close(self) -> bool:
        """Write the rest; return whether the log is whole, and its beginning was not removed.

        Raises:
            OSError: the disk fails.
        """
        self._write()
        return min(number for number, _ in numbered_files(self._folder)) == 1

    def _write(self) -> None:
        self._files.append(bytes(self._waiting))
        self._waiting.clear()


def _first(settings: LogSettings) -> Mapping[str, object]:
    return {"format": _FORMAT, "settings": settings}


def _record(number: int, event: Event | MetricsEntry, commands: Sequence[Command]) -> Mapping[str, object]:
    return {"number": number, "event": event, "commands": tuple(commands)}


def _line(line: object) -> bytes:
    return dumps(line).encode()


# ------------------------------------------------------------------------------------------------------------- reading


def read_log(path: Path) -> tuple[LogSettings, Iterator[LoggedEvent]]:
    """Return the settings of a log and its events from the beginning to the end of a file.

    It may be the log of a gateway, of a simulated gateway, or of simulated graphs.

    Args:
        path: one of its files; earlier files of the same log, back to the one with the settings, belong to it.

    Raises:
        LogError: it is not a log of events, or a part is missing.
        OSError: it cannot be read.
    """
    lines = _lines(path)
    try:
        settings = loads(next(lines, b""))["settings"]
    except (ValueError, KeyError, TypeError) as error:
        raise LogError(f"{path} is not an event log of this version of Spillway ({error})") from error
    return settings, _steps(path, lines)


def all_logged(folder: Path) -> Iterator[LogSettings | LoggedEvent]:
    """Return the settings and the events of all gateways that wrote to a folder, as far as they are still there.

    Args:
        folder: of the logs.

    Raises:
        LogError: a line is none of this version of Spillway.
        OSError: a file cannot be read.
    """
    for _, path in sorted(numbered_files(folder)):
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                try:
                    raw = json.loads(line)
                    if "settings" in raw:
                        yield loads(line)["settings"]
                    else:
                        yield LoggedEvent(loads(json.dumps(raw["event"])), tuple(map(_text, raw["commands"])))
                except (ValueError, KeyError, TypeError) as error:
                    raise LogError(f"{path}, line {number}, cannot be read: {error}") from error


def _steps(path: Path, lines: Iterable[bytes]) -> Iterator[LoggedEvent]:
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            return  # the gateway was killed while it wrote this line, or is writing it
        try:
            raw = json.loads(line)
            event = loads(json.dumps(raw["event"]))
            found, commands = raw["number"], tuple(_text(command) for command in raw["commands"])
        except (ValueError, KeyError, TypeError) as error:
            raise LogError(f"{path}: what should be event {number} cannot be read: {error}") from error
        if found != number:
            raise LogError(
                f"{path}: event {found} follows event {number - 1}, those in between were not written (the gateway's "
                "own log says why): replay the log of another start"
            )
        yield LoggedEvent(event, commands)


def _lines(path: Path) -> Iterator[bytes]:
    """Return the lines of a gateway's log from its first to the end of a file."""
    files = [path]
    while not _begins(files[0]):
        before = files[0].with_name(f"{int(files[0].stem) - 1:08d}.jsonl") if files[0].stem.isdigit() else None
        if before is None or not before.exists():
            raise LogError(
                f"{files[0]} does not begin with settings, and the file before it is gone: a log can only be read from "
                "its beginning"
            )
        files.insert(0, before)
    for each in files:
        with each.open("rb") as file:
            yield from file


def _begins(path: Path) -> bool:
    with path.open("rb") as file:
        return file.readline().startswith(b'{"format":')


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# ----------------------------------------------------------------------------------------------------------- replaying


def of_gateway(logged: _Part | GraphsSettings | MetricsEntry) -> _Part:
    """Return settings or an event of a gateway's log.

    Raises:
        LogError: the log is that of simulated graphs.
    """
    if isinstance(logged, GraphsSettings | MetricsEntry):
        raise LogError("this is the event log of simulated graphs, which have no scheduler: give a gateway's log")
    return logged


def replay(settings: LogSettings, steps: Iterable[LoggedEvent]) -> Replayed:
    """Pass a log to a new scheduler and compare the commands; stop at the first difference.

    Raises:
        LogError: a scheduler has no part in this log.
    """
    scheduler = Scheduler(of_gateway(settings))
    events = commands = 0
    for step, logged in steps:
        event = of_gateway(step)
        events += 1
        try:
            now = tuple(dumps(command) for command in scheduler.handle(event))
        except (ValueError, KeyError, ImpossibleTransitionError) as error:
            return Replayed(events, commands, _difference(events, event, "\n".join(logged), f"refuses it: {error}"))
        commands += len(now)
        for was, is_now in _pairs(logged, now):
            if was != is_now:
                return Replayed(events, commands, _difference(events, event, _in_words(was), _in_words(is_now)))
    return Replayed(events, commands)


def _pairs(logged: tuple[str, ...], now: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for at in range(max(len(logged), len(now))):
        yield logged[at] if at < len(logged) else "", now[at] if at < len(now) else ""


def _difference(number: int, event: Event, logged: str, now: str) -> str:
    named = next((f" of {name}" for key in ("vm", "query") if (name := getattr(event, key, ""))), "")
    return (
        f"The first difference is at event {number}, {type(event).__name__}{named} ({event.event_id}, at "
        f"{event.at_s:.3f} s).\n  In the log: {logged}\n  Now:        {now}"
    )


def _in_words(command: str) -> str:
    """Return a command in words."""
    if not command:
        return "no further command"
    told = json.loads(command)
    kind, cause = told.pop("$"), told.pop("cause")
    of = told.pop("vm", "") or told.pop("query", "")
    rest = "".join(f", {key} {_text(value)[:_SHOWN]}" for key, value in told.items())
    return f"{kind} {of}{rest}, because {cause['why']}"
