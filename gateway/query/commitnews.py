"""Reports to the engine host of a stateful query what its sink holds, so that its checkpoint can advance."""

from __future__ import annotations

import asyncio
import logging

from gateway.hosts.connection import Connection
from infra.link.channel import LinkLost
from infra.messages import CommittedMessage
from infra.together import end_tasks

_LOG = logging.getLogger(__name__)


class CommitNews:
    """Sends ``CommittedMessage`` messages in the background.

    Args:
        query: its name.
    """

    def __init__(self, query: str) -> None:
        self._query = query
        self._messages: set[asyncio.Task[None]] = set()

    def notify(self, home: Connection, epoch: int, last_seq: int) -> None:
        """Report in the background that everything up to and including ``last_seq`` is committed."""
        if last_seq < 0:
            return
        task = asyncio.create_task(
            self._send(home, CommittedMessage(query=self._query, epoch=epoch, last_seq=last_seq))
        )
        self._messages.add(task)
        task.add_done_callback(self._messages.discard)

    async def _send(self, home: Connection, message: CommittedMessage) -> None:
        try:
            await home.link.send(message)
        except LinkLost as error:
            # The next host gets it when the query is opened there.
            _LOG.debug(
                "%s: %s was not notified that seq %d is committed: %s", self._query, home.name, message.last_seq, error
            )

    async def stop(self) -> None:
        """Send nothing more."""
        await end_tasks(*self._messages)
