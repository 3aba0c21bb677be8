"""Named places in the code at which a fault test kills or suspends the process, or makes the disk fail.

``SPILLWAY_FAILPOINTS`` is a list, separated by blanks, of ``<name>=<what>@<time>`` or ``<name>=<what>@<first>-<last>``.
The fault ``<what>`` (``kill``, ``stop`` as SIGSTOP does, ``enospc``, ``eio``) happens when the place is reached for the
n-th time, counted from 1. Without the variable nothing ever happens. If ``SPILLWAY_FAILPOINTS_FROM`` names a file, the
count begins when this file exists.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

MOVING: Final = frozenset(
    {
        "move.stopped",
        "move.sent",
        "move.noted",
        "move.opened",
        "return.stopped",
        "return.installed",
        "return.fetched",
        "return.settled",
        "return.opened",
    }
)
"""The places of a move of a query with its state."""
MOVING_PARTS: Final = frozenset(
    {
        "part.leaves.copied",
        "part.leaves.opened",
        "part.leaves.switched",
        "part.leaves.closed",
        "part.returns.copied",
        "part.returns.opened",
        "part.returns.switched",
        "part.returns.closed",
    }
)
"""The places of a move of a part of a divided query."""
HELD: Final = frozenset({"part.leaves.held", "part.returns.held"})
"""The places of such a move that are only reached if the part has to be held."""
DIRECT: Final = frozenset({"direct.noted", "direct.opened", "direct.progress", "direct.stopped", "direct.taken"})
"""The places at which Spark begins to carry a query, carries it, and the gateway takes it back."""
NAMES: Final = (
    MOVING
    | MOVING_PARTS
    | HELD
    | DIRECT
    | frozenset(
        {
            "runlog.append.before",
            "runlog.append.written",
            "runlog.append.after",
            "runlog.rewrite.before",
            "runlog.rewrite.after",
            "journal.append.before",
            "journal.append.written",
            "journal.append.after",
            "journal.unlink.before",
            "journal.unlink.after",
            "deadletters.append.before",
            "deadletters.append.written",
            "deadletters.append.after",
            "deadletters.replay.before",
            "deadletters.replay.noted",
            "deadletters.replay.moved",
            "deadletters.replay.after",
            "deadletters.replay.forgotten",
            "sink.commit.before",
            "sink.commit.prepared",
            "sink.commit.visible",
            "sink.commit.after",
            "source.acknowledge.before",
            "source.acknowledge.after",
        }
    )
)
_RULE = re.compile(r"(?P<name>[\w.]+)=(?P<what>kill|stop|enospc|eio)@(?P<first>\d+)(-(?P<last>\d+))?")
_SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_ERRORS: Final = {"enospc": errno.ENOSPC, "eio": errno.EIO}


class Failpoints:
    """The rules of one process.

    Args:
        text: as in ``SPILLWAY_FAILPOINTS``.
        begin: the file whose existence begins the count; None begins it at once.

    Raises:
        ValueError: the text has another form, or names a place that does not exist.
    """

    def __init__(self, text: str, begin: Path | None = None) -> None:
        self._begin = begin
        self._rules: dict[str, list[tuple[str, int, int]]] = {}
        self._times: Counter[str] = Counter()
        for word in text.split():
            rule = _RULE.fullmatch(word)
            if rule is None or rule["name"] not in NAMES:
                raise ValueError(
                    f'"{word}" is not a failpoint; write <name>=kill@3 with one of {", ".join(sorted(NAMES))}'
                )
            first = int(rule["first"])
            self._rules.setdefault(rule["name"], []).append((rule["what"], first, int(rule["last"] or first)))

    def reached(self, name: str) -> None:
        """See the function ``reached``."""
        if not self._rules or not (self._begin is None or self._begin.exists()):
            return
        self._times[name] += 1
        for what, first, last in self._rules.get(name, ()):
            if not first <= self._times[name] <= last:
                continue
            if what in _SIGNALS:
                os.kill(os.getpid(), _SIGNALS[what])
                continue
            raise OSError(_ERRORS[what], f"{os.strerror(_ERRORS[what])} (failpoint {name})")


def from_environment(environment: Mapping[str, str]) -> Failpoints:
    """Return the rules that the environment sets."""
    begin = environment.get("SPILLWAY_FAILPOINTS_FROM")
    return Failpoints(environment.get("SPILLWAY_FAILPOINTS", ""), Path(begin) if begin else None)


_failpoints = from_environment(os.environ)


@contextlib.contextmanager
def installed(text: str) -> Iterator[None]:
    """Replace the rules while a test runs; the text is as in ``SPILLWAY_FAILPOINTS``."""
    global _failpoints
    before, _failpoints = _failpoints, Failpoints(text)
    try:
        yield
    finally:
        _failpoints = before


def reached(name: str) -> None:
    """Report that the place ``name`` (one of ``NAMES``) is reached.

    Raises:
        OSError: a rule makes the disk fail here.
    """
    _failpoints.reached(name)
