"""The output of ``spillway why``: decisions of the ledger in sentences, and the result of a replay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gateway.config import Config
from gateway.config.settings import scheduler_settings
from gateway.views.why.decisions import decision_at, decisions_before
from gateway.views.why.eventlog import LogError, all_logged, read_log, replay
from gateway.views.why.spending import summed, told_spending
from gateway.views.why.telling import moment, sentences
from infra.clock import SystemClock


class WhyError(Exception):
    """There is no answer; the message says why."""


def decided(state_dir: Path, queries: Iterable[str], at: str) -> dict[str, Any]:
    """Return the ledger's lines about some queries at a time; no gateway needs to run.

    Raises:
        WhyError: the time is invalid, or the ledger cannot be read.
    """
    try:
        wall_s = moment(at, SystemClock().wall())
        found = {name: decision_at(state_dir / "decisions", name, wall_s) for name in queries}
    except (ValueError, OSError) as error:
        raise WhyError(f"--at: {error}") from error
    return {name: line for name, line in found.items() if line is not None}


def last_decisions(state_dir: Path, at: str | None, most: int) -> list[dict[str, Any]]:
    """Return the ledger's last lines up to a time, the newest first; no gateway needs to run.

    Args:
        state_dir: of the config.
        at: a time as users write it; None: now.
        most: how many.

    Raises:
        WhyError: the time is invalid, or the ledger cannot be read.
    """
    try:
        before_s = float("inf") if at is None else moment(at, SystemClock().wall())
        return decisions_before(state_dir / "decisions", None, before_s, most)
    except (ValueError, OSError) as error:
        raise WhyError(f"--at: {error}" if at is not None else str(error)) from error


def told(queries: Iterable[str], lines: Mapping[str, Any], at: str | None) -> Iterator[str]:
    """Return the decisions about some queries in sentences."""
    for name in queries:
        if name in lines:
            yield from sentences(lines[name])
        else:
            yield f"{name}: nothing was decided {'so far' if at is None else 'so long ago that is still known'}"


def spending_told(config: Config, since: str | None) -> Iterator[str]:
    """Return what VMs cost and how long queries were over their targets, as lines; no gateway needs to run.

    Args:
        config: of the gateway.
        since: how long ago it begins, or when, as users write it; None: with the oldest log.

    Raises:
        WhyError: the time is invalid, or a log cannot be read.
    """
    try:
        since_s = float("-inf") if since is None else moment(since, SystemClock().wall())
    except ValueError as error:
        raise WhyError(f"--since: {error}") from error
    try:
        found = summed(scheduler_settings(config), all_logged(config.gateway.state_dir / "events"), since_s)
    except (LogError, OSError) as error:
        raise WhyError(str(error)) from error
    return told_spending(found)


def replayed(path: Path) -> tuple[str, bool]:
    """Pass a log of events to a new scheduler; return the result as text, and whether the commands are the same.

    Raises:
        WhyError: it is not a log, or a part is missing.
    """
    try:
        found = replay(*read_log(path))
    except (LogError, OSError) as error:
        raise WhyError(f"--replay: {error}") from error
    if found.difference:
        return found.difference, False
    return f"{found.events} events, {found.commands} commands: the same", True
