"""The ledger of decisions: what was measured, forecast, wanted and done, as JSON lines in ``state_dir/decisions``.

A query gets a line when something changed, when its policy has made a new plan, and otherwise once a minute. The
scheduler does not know about it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from gateway.views.why.linewriter import LineWriter
from infra.statefiles import numbered_files
from policies.signals import Command, Decision, DrainVm, Event, SetRoute, SetShed, StartVm, TerminateVm, VmReady

FILE_BYTES = 4_000_000
"""A file is closed once it has this size."""

LEDGER_BYTES = 64_000_000
"""The oldest files are removed while the total size is larger than this."""

_SLOTS_BETWEEN = 60
_BETWEEN_MOST = 1000


def record(
    decision: Decision, wall_s: float, commands: Sequence[Command], setbacks: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a decision as one line of the ledger.

    Args:
        decision: of one query in one slot.
        wall_s: the end of the slot, in seconds since 1970.
        commands: the commands of the slot.
        setbacks: failures before a VM became ready in this slot.
    """
    slot, advice, expected = decision.slot, decision.advice, decision.advice.expected
    at = datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds")
    return {
        "at": at,
        # Exactly the time as text, so that a search for that text finds this line.
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
        "rules": dict(decision.rules),
        "options": [{"vms": option.vms, "usd": option.usd} for option in decision.options],
        "vm_note": decision.vm_note,
        "setbacks": list(setbacks),
        "boot": decision.boot._asdict(),
        "slow": list(decision.slow),
        "equations": list(decision.equations),
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
    """Writes the ledger in the background.

    Args:
        folder: of the ledger.
        file_bytes: a file is closed at this size.
        ledger_bytes: above this total size the oldest file is removed.

    Attributes:
        last: the last line about each query.
        news: the queries whose last line was written.
    """

    def __init__(self, folder: Path, file_bytes: int = FILE_BYTES, ledger_bytes: int = LEDGER_BYTES) -> None:
        self._changes: dict[str, tuple[object, ...]] = {}
        self._silent: dict[str, int] = {}
        self._between: deque[Command] = deque(maxlen=_BETWEEN_MOST)
        self._setbacks: deque[str] = deque(maxlen=_BETWEEN_MOST)
        self._writer = LineWriter(folder, "decisions", encode=msgspec.json.encode, limits=(file_bytes, ledger_bytes))
        self.last: dict[str, dict[str, Any]] = {}
        self.news: tuple[str, ...] = ()

    def note_commands(self, commands: Sequence[Command]) -> None:
        """Note commands between two slots, for example after a VM failed; they go into the line of the next slot."""
        self._between.extend(commands)

    def note_event(self, event: Event) -> None:
        """Note an event between two slots, likewise."""
        if isinstance(event, VmReady):
            self._setbacks.extend(f"{event.vm}: {failure}" for failure in event.setbacks)

    def note(self, decisions: Sequence[Decision], wall_s: float, commands: Sequence[Command]) -> None:
        """Note the decisions of a slot, and begin to write those with news."""
        commands, setbacks = [*self._between, *commands], tuple(self._setbacks)
        self._between.clear()
        self._setbacks.clear()
        news = []
        for decision in decisions:
            line = record(decision, wall_s, commands, setbacks)
            self.last[decision.query] = line
            if self._is_news(decision, line):
                self._writer.add(line)
                news.append(decision.query)
        self.news = tuple(news)
        self._writer.write_soon()

    def _is_news(self, decision: Decision, line: dict[str, Any]) -> bool:
        troubles = (line["setbacks"], decision.slow)
        change = (tuple(decision.vms.items()), decision.phi_data, line["actions"], troubles, decision.advice)
        silent = self._silent.get(decision.query, 0)
        news = self._changes.get(decision.query) != change or silent + 1 >= _SLOTS_BETWEEN
        self._changes[decision.query] = change
        self._silent[decision.query] = 0 if news else silent + 1
        return news

    async def close(self) -> None:
        """Write what waits."""
        await self._writer.close()


def decisions_before(folder: Path, query: str | None, wall_s: float, most: int) -> list[dict[str, Any]]:
    """Return the newest lines before a time, newest first: about one query, or about all.

    Raises:
        OSError: the ledger cannot be read.
    """
    found: list[dict[str, Any]] = []
    for _, path in sorted(numbered_files(folder), reverse=True):
        for raw in reversed(path.read_bytes().splitlines()):
            line = _parsed(raw)
            if line is not None and line["wall_s"] < wall_s and query in (None, line.get("query")):
                found.append(line)
                if len(found) == most:
                    return found
    return found


def decision_at(folder: Path, query: str, wall_s: float) -> dict[str, Any] | None:
    """Return the line that was valid for a query at a time; None if there is none that old.

    Raises:
        OSError: the ledger cannot be read.
    """
    for _, path in sorted(numbered_files(folder), reverse=True):
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
