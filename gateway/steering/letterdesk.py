"""The dead letters of a running gateway: listed, replayed as new events, or deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.journal.deadletters import DEAD_LETTERS, ReplayRefusedError
from gateway.steering.parts import GatewayParts
from gateway.views.http.letters import read_letters
from gateway.views.http.models import CountAnswer, LetterAnswer, LettersAnswer
from gateway.views.http.operations import RefusedNowError, UnknownNameError
from gateway.views.http.orders import LettersAsked
from infra.threads import run_to_end


class LetterDesk:
    """The dead letters of all queries.

    Args:
        parts: of the gateway.
    """

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts

    async def letters(self, query: str, asked: LettersAsked) -> LettersAnswer:
        """Return some dead letters of a query.

        Raises:
            UnknownNameError: the query does not exist, or no letter begins there.
            OSError: the disk fails.
        """
        with self._letter_names(query):
            path = self._parts.config.gateway.state_dir / "queries" / query / DEAD_LETTERS
            found, following = await run_to_end(lambda: read_letters(path, asked.after, asked.limit))
        return LettersAnswer(count=self._parts.queries[query].dead_letters.count, letters=found, next=following)

    async def letter(self, query: str, position: int) -> LetterAnswer:
        """Return one dead letter.

        Raises:
            UnknownNameError: the query does not exist, or no letter begins there.
            OSError: the disk fails.
        """
        if (found := await self.letters(query, LettersAsked(after=position, limit=1))).letters:
            return found.letters[0]
        raise UnknownNameError(f"no dead letter of query {query} begins at {position}")

    @contextmanager
    def _letter_names(self, query: str) -> Iterator[None]:
        self._parts.check_known(query)
        try:
            yield
        except ValueError as error:
            raise UnknownNameError(f"query {query}: {error}") from error

    async def replay(self, query: str) -> CountAnswer:
        """Feed a query's dead letters back into it as new events.

        Raises:
            UnknownNameError: the query does not exist.
            RefusedNowError: not now.
            OSError: the disk fails; call it again.
        """
        self._parts.check_known(query)
        try:
            return CountAnswer(count=await self.replay_dead_letters(query))
        except ReplayRefusedError as error:
            raise RefusedNowError(str(error)) from error

    async def replay_dead_letters(self, query: str) -> int:
        """See ``replay``; return how many.

        Raises:
            KeyError: the query does not exist.
            ReplayRefusedError: not now.
        """
        if query not in self._parts.queries:
            raise KeyError(query)
        if self._parts.phase() != "running":
            raise ReplayRefusedError(f"the gateway is {self._parts.phase()}: retry when it is running")
        count = await self._parts.queries[query].replay_dead_letters()
        # Those that read its results may have ended with it.
        for other in self._parts.queries.values():
            other.read_on()
        return count

    async def drop(self, query: str) -> CountAnswer:
        """Delete a query's dead letters.

        Raises:
            UnknownNameError: the query does not exist.
            RefusedNowError: the gateway does not run.
            OSError: the disk fails; call it again.
        """
        self._parts.check_known(query)
        self._parts.check_runs()
        dropped = self._parts.queries[query]
        return CountAnswer(count=await dropped.drop_dead_letters(dropped.committed_before))
