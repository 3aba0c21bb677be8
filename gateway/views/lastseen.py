"""What a gateway last showed of itself, as a file: ``spillway status`` shows it when no gateway runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from infra.statefiles import write_atomically

LAST_SEEN: Final = "last-seen.json"
"""Within the state_dir."""


class LastSeen(msgspec.Struct, frozen=True):
    """The gateway at one time.

    Attributes:
        wall_s: when, in seconds since 1970.
        ended: whether it ended then, in order.
        status: what ``/status`` answered.
        answers: what the API answered to ``status``, ``queries``, ``vms`` and ``costs``.
    """

    wall_s: float
    ended: bool
    status: dict[str, Any]
    answers: dict[str, Any]

    @property
    def heading(self) -> str:
        """Return of which time this is, and why it is not newer."""
        at = f"{datetime.fromtimestamp(self.wall_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
        how = "when a gateway ended" if self.ended else "when a gateway last wrote it; that one did not end in order"
        return f"this is as of {at}, {how}"


class LastSeenError(Exception):
    """The file cannot be read; the message says what to do."""


def write_last_seen(state_dir: Path, seen: LastSeen) -> None:
    """Replace the file.

    Raises:
        OSError: the disk fails.
    """
    write_atomically(state_dir / LAST_SEEN, msgspec.json.encode(seen))


def read_last_seen(state_dir: Path) -> LastSeen | None:
    """Return what was last shown; None if no gateway has run.

    Raises:
        LastSeenError: the file cannot be read.
    """
    path = state_dir / LAST_SEEN
    try:
        return msgspec.json.decode(path.read_bytes(), type=LastSeen)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise LastSeenError(f"{path} cannot be read ({error}); remove it: the next gateway writes it anew") from error
