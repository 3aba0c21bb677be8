"""The dead letters of one query: the file, how many bad rows make the query count as broken, and the replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from gateway.config.models import QueryConfig
from gateway.journal.deadletters import DEAD_LETTERS, DeadLetterFile, ReplayRefusedError
from gateway.query.flow.letters import LetterLog
from gateway.query.flow.statistics import Tally
from gateway.sources.replayed import WithReplays
from infra.clock import Clock
from infra.threads import run_to_end
from policies.failures.poison import BadRows


class QueryLetters:
    """What one query keeps of its dead letters, through all its starts.

    Args:
        name: the query's name.
        config: the query's config.
        folder: its part of the state_dir.
        tally: counts them for the report.
        clock: time.

    Attributes:
        file: where they are written.
        bad_rows: outlives a start, so that repeated failures of a query are recognised.
    """

    def __init__(self, name: str, config: QueryConfig, folder: Path, tally: Tally, clock: Clock) -> None:
        self._name = name
        self._folder = folder
        self._replaying = asyncio.Lock()
        path = folder / DEAD_LETTERS
        self.file = DeadLetterFile(path, config.dead_letters.limit_bytes, LetterLog(name, path, tally, clock).added)
        self.bad_rows = BadRows(config.dead_letters.most)

    async def drop(self, before_seq: int) -> int:
        """Delete the letters; return how many.

        Args:
            before_seq: everything before it is committed.

        Raises:
            OSError: the disk fails; call it again.
        """
        async with self._replaying:
            return await run_to_end(lambda: self.file.drop(before_seq))

    async def replay(self, source: Callable[[], WithReplays], before_seq: Callable[[], int]) -> int:
        """Feed the letters back into the query as new events, one request at a time; return how many.

        Args:
            source: returns the query's open source; raises ReplayRefusedError if the query takes no events now.
            before_seq: returns the seq before which everything is committed.

        Raises:
            ReplayRefusedError: see ``source``; or letters are being replayed already.
            OSError: the disk fails; call it again.
        """
        async with self._replaying:
            feeding = source()
            await feeding.look()
            waiting = feeding.waiting
            if waiting:
                raise ReplayRefusedError(
                    f"{waiting} dead letters of query {self._name} are being replayed already: retry when they are done"
                )
            committed_before = before_seq()
            await run_to_end(lambda: self.file.move_out(self._folder / "replay", committed_before))
            await feeding.look()
            return feeding.waiting
