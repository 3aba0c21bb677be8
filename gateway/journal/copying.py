"""Keeps the copy of an open journal: uploads before the disk is written, and tidies up beside everything else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from gateway.journal.copyplan import OBJECTS_MAX
from gateway.journal.files import JournalEntry, JournalFiles
from gateway.journal.keys import SeenKeys
from gateway.journal.replica import MARK, Replica
from infra.clock import Clock
from infra.threads import run_to_end

_LOG = logging.getLogger(__name__)


class Copying:
    """What a journal does for its copy; nothing if it has none.

    Args:
        files: the journal's.
        keys: the journal's; None if it remembers none.
        replica: None for no copy.
        clock: time.

    Attributes:
        replica: as given.
        in_doubt: whether the copy may have an append that failed.
    """

    def __init__(self, files: JournalFiles, keys: SeenKeys | None, replica: Replica | None, clock: Clock) -> None:
        self.replica = replica
        self.in_doubt = False
        self._files = files
        self._keys = keys
        self._clock = clock
        self._released_record = 0
        self._tidying: asyncio.Task[None] | None = None

    @property
    def why_full(self) -> str:
        """Why nothing can be appended until objects are deleted; empty if it can."""
        if self.replica is None or not self.replica.full:
            return ""
        return f"the journal's copy has {OBJECTS_MAX} objects, and more are not allowed"

    def recover(self) -> None:
        """Open the files: from the copy, if there is one. Blocks; see ``Replica.recover`` for errors."""
        if self.replica is not None:
            self.replica.recover(self._files, self._keys)
            return
        # What is appended from now on is not in the copy: a later start with it must not discard that.
        (self._files.folder / MARK).unlink(missing_ok=True)
        self._files.recover()

    async def upload(self, entries: Sequence[JournalEntry], notes: Mapping[str, bytes]) -> None:
        """Bring the copy to the records on disk and ``entries``; in doubt until ``settled``.

        Raises:
            OSError: see ``Replica.upload``.
        """
        replica = self.replica
        if replica is not None:
            self.in_doubt = True
            await run_to_end(lambda: replica.upload(self._files.next_record, entries, notes))

    def settled(self) -> None:
        """Note that the copy and the disk have the same."""
        self.in_doubt = False

    async def mend(self) -> None:
        """If an append failed after its upload, make the copy forget it.

        Raises:
            OSError: see ``Replica.upload``.
        """
        if self.in_doubt:
            await self.upload([], {})
            self.settled()

    def release(self, record: int) -> None:
        """Begin to delete what only records before this one need, unless that is going on."""
        self._released_record = max(self._released_record, record)
        if self.replica is not None and (self._tidying is None or self._tidying.done()):
            self._tidying = asyncio.create_task(self._tidy(self.replica), name="delete from a journal's copy")

    async def _tidy(self, replica: Replica) -> None:
        now_s, record = self._clock.wall(), self._released_record
        oldest_s = now_s if self._keys is None else self._keys.oldest_wall_s(now_s)
        try:
            await run_to_end(lambda: replica.tidy(record, oldest_s))
        except OSError as error:
            _LOG.warning("%s: objects that are not needed remain for now: %s", self._files.folder, error)

    async def close(self) -> None:
        """Wait until nothing is going on."""
        if self._tidying is not None:
            await asyncio.wait([self._tidying])
