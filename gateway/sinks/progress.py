"""The progress of a sink that cannot store it itself: a small file in the query's part of the state_dir."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gateway.core.intervals import IntervalSet
from infra.statefiles import StateError, write_atomically
from infra.threads import run_to_end


class _Progress(msgspec.Struct, frozen=True):
    owner: str
    committed: list[tuple[int, int]]


class ProgressFile:
    """The seq intervals that were delivered, noted first in memory and then durably; creates its folder.

    What was noted but not saved when the process died is delivered again: at least once. While the process lives,
    nothing is sent twice because of a failed save: check ``delivered`` before sending, and save again.

    Args:
        path: of the file.
        owner: identity of the state that numbers the seqs.
    """

    def __init__(self, path: Path, owner: str) -> None:
        self._path = path
        self._owner = owner
        self.committed = IntervalSet()
        self.delivered = IntervalSet()

    async def open(self) -> None:
        """Read what was saved.

        Raises:
            StateError: it belongs to another state, or cannot be read.
            OSError: the disk fails.
        """
        self.committed = IntervalSet(await run_to_end(self._read))
        self.delivered = IntervalSet(self.committed)

    def note(self, first_seq: int, last_seq: int) -> None:
        """Note that the receiver has accepted the results of these events."""
        self.delivered.add(first_seq, last_seq)

    async def save(self) -> None:
        """Make everything that was noted durable; ``committed`` then includes it, as a new object.

        Raises:
            OSError: it is not durable, but still noted.
        """
        intervals = list(self.delivered)
        if intervals == list(self.committed):
            return
        data = msgspec.json.encode(_Progress(self._owner, intervals))
        await run_to_end(lambda: write_atomically(self._path, data))
        self.committed = IntervalSet(intervals)

    def _read(self) -> list[tuple[int, int]]:
        if not self._path.exists():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, msgspec.json.encode(_Progress(self._owner, [])))
            return []
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=_Progress)
        except msgspec.DecodeError as error:
            raise StateError(
                f"{self._path} cannot be read ({error}): restore it from a backup; without it every result that the "
                "source still holds is sent again"
            ) from error
        if found.owner != self._owner:
            raise StateError(
                f"{self._path} belongs to a different state than the files beside it: restore them together, or choose "
                "an empty state_dir"
            )
        return found.committed
