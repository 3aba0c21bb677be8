"""The ledger of decisions: what was seen, forecast, wanted and done, as JSON lines in ``state_dir/decisions``.

A line is written for a query when something changed, when its policy has planned anew, and each minute of slots in
between. The scheduler knows nothing of it. Losing some lines is no harm to any query: a disk that fails is told of in
the log, and lines that cannot be written in time are dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from infra.threads import run_to_end
from policies.signals import Command, Decision, DrainVm, Event, SetRoute, SetShed, StartVm, TerminateVm, VmReady

_LOG = logging.getLogger(__name__)

FILE_BYTES = 4_000_000
"""A file is closed once it is so long."""

LEDGER_BYTES = 64_000_000
"""The oldest files are removed while all together are longer."""

_FILES_MOST = 256
_SLOTS_BETWEEN = 60
_WAITING_MOST = 10_000
_BETWEEN_MOST = 1000


def record(
    decision: Decision, wall_s: float, commands: Sequence[Command], setbacks: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a decision as one line of the ledger.

    Args:
        decision: of one query in one slot.
        wall_s: the end of the slot, in seconds since 1970.
        commands: what was commanded in the slot.
        setbacks: what went wrong before a VM was had that became ready in it.
    """
    slot, advice, expected = decision.slot, decision.advice, decision.advice.expected
    at = datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds")
    return {
        "at": at,
        # Exactly that time: whoever asks for what is written here means this line.
        "wall_s": datetime.fromisoformat(at).timestamp(),
        "query": decision.query,
        "policy": decision.policy,
        "seen": {
            "latency_s": decision.latency_s,
            "input_rate": slot.input_rate,
            "open_events": sum(slot.open_events.values()),
            "backlog_events": slot.backlog_events,
            "rates": dict(slot.rates),
        },
        "vms": dict(decision.vms),
        "phi_vm": decision.phi_vm,
        "phi_data": decision.phi_data,
        "share": decision.share,
        "verdict": decision.verdict,
        "wanted": advice.wanted,
        "kept": advice.kept if advice.wanted is not None else None,
        "why": advice.why,
        "forecast": None
        if expected is None
        else {"in_s": expected.in_s, "rate": expected.rate, "low": expected.low, "high": expected.high},
        "rules": dict(advice.rules),
        "options": [{"vms": option.vms, "usd": option.usd} for option in advice.options],
        "vm_note": decision.vm_note,
        "setbacks": list(setbacks),
        "slow": list(decision.slow),
        "actions": [_action(command) for command in commands if _concerns(command, decision.query)],
    }


def _concerns(command: Command, query: str) -> bool:
    return isinstance(command, StartVm | DrainVm | TerminateVm) or (
        isinstance(command, SetRoute | SetShed) and command.query == query
    )


def _action(command: Command) -> dict[str, str]:
    of = getattr(command, "vm", "") or getattr(command, "query", "")
    return {"what": type(command).__name__, "of": of, "why": command.cause.why}


class DecisionLog:
    """Writes the ledger; nobody waits for it.

    Args:
        folder: of the ledger.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changes: dict[str, tuple[object, ...]] = {}
        self._silent: dict[str, int] = {}
        self._between: deque[Command] = deque(maxlen=_BETWEEN_MOST)
        self._setbacks: deque[str] = deque(maxlen=_BETWEEN_MOST)
        self._waiting: list[bytes] = []
        self._dropped = 0
        self._writing: asyncio.Task[None] | None = None
        # A file of its own for each gateway: the last line of the one before may be torn.
        self._number = 1 + max((number for number, _ in _files(folder)), default=0)
        self.last: dict[str, dict[str, Any]] = {}

    def did(self, commands: Sequence[Command]) -> None:
        """Take in what was commanded between two slots, as when a VM fails; it stands in the line of the next slot."""
        self._between.extend(commands)

    def heard(self, event: Event) -> None:
        """Take in what happened between two slots, likewise."""
        if isinstance(event, VmReady):
            self._setbacks.extend(f"{event.vm}: {setback}" for setback in event.setbacks)

    def note(self, decisions: Sequence[Decision], wall_s: float, commands: Sequence[Command]) -> None:
        """Take in what was decided in a slot, and begin to write what is worth it."""
        commands, setbacks = [*self._between, *commands], tuple(self._setbacks)
        self._between.clear()
        self._setbacks.clear()
        for decision in decisions:
            line = record(decision, wall_s, commands, setbacks)
            self.last[decision.query] = line
            if self._is_news(decision, line):
                self._waiting.append(msgspec.json.encode(line))
        if len(self._waiting) > _WAITING_MOST:
            self._dropped += len(self._waiting) - _WAITING_MOST
            del self._waiting[: len(self._waiting) - _WAITING_MOST]
        if self._waiting and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write(), name="write the decisions")

    def _is_news(self, decision: Decision, line: dict[str, Any]) -> bool:
        troubles = (line["setbacks"], decision.slow)
        change = (tuple(decision.vms.items()), decision.phi_data, line["actions"], troubles, decision.advice)
        silent = self._silent.get(decision.query, 0)
        news = self._changes.get(decision.query) != change or silent + 1 >= _SLOTS_BETWEEN
        self._changes[decision.query] = change
        self._silent[decision.query] = 0 if news else silent + 1
        return news

    async def _write(self) -> None:
        lines, self._waiting = self._waiting, []
        try:
            await run_to_end(lambda: self._append(b"\n".join(lines) + b"\n"))
        except OSError as error:
            _LOG.warning("%d decisions were not written down: %s", len(lines) + self._dropped, error)
            self._dropped = 0

    def _append(self, data: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._number:08d}.jsonl"
        with path.open("ab") as file:
            file.write(data)
            if file.tell() >= FILE_BYTES:
                self._number += 1
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        files = sorted(_files(self._folder))
        sizes = [path.stat().st_size for _, path in files]
        while files[:-1] and (sum(sizes) > LEDGER_BYTES or len(files) > _FILES_MOST):
            files.pop(0)[1].unlink()
            sizes.pop(0)

    async def close(self) -> None:
        """Write what waits."""
        if self._writing is not None:
            await self._writing
        if self._waiting:
            await self._write()


def decision_at(folder: Path, query: str, wall_s: float) -> dict[str, Any] | None:
    """Return the line that was in force for a query at a time; None if there is none so old.

    Raises:
        OSError: the ledger cannot be read.
    """
    for _, path in sorted(_files(folder), reverse=True):
        lines = path.read_bytes().splitlines()
        for line in reversed(lines):
            found = _parsed(line)
            if found is not None and found.get("query") == query and found["wall_s"] <= wall_s:
                return found
    return None


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return None  # the gateway was killed while it wrote this line
    return found


def _files(folder: Path) -> Iterator[tuple[int, Path]]:
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.suffix == ".jsonl" and path.stem.isdigit():
            yield int(path.stem), path
