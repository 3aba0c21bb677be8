"""Retries until a disk, a broker or a store works again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from infra.clock import Clock

_LOG = logging.getLogger(__name__)
_FIRST_WAIT_S = 0.2
_WAIT_MAX_S = 5.0
T = TypeVar("T")


class Outage:
    """Does something until it succeeds; meanwhile ``why`` says what is wrong, and the gateway is not ready.

    There is no last try: what waits here has not been acknowledged to anybody and must not be lost, and whoever
    waits is cancelled when the gateway ends.

    Args:
        clock: time.
        errors: what is an outage; everything else is passed on.
    """

    def __init__(self, clock: Clock, errors: tuple[type[Exception], ...]) -> None:
        self._clock = clock
        self._errors = errors
        self.why = ""

    @property
    def healthy(self) -> bool:
        """Whether the last try succeeded."""
        return not self.why

    async def outlast(self, what: str, action: Callable[[], Awaitable[T]]) -> T:
        """Return what ``action`` returns, once it does; ``what`` names it in the log."""
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                result = await action()
            except self._errors as error:
                if self.healthy:
                    # Said once, not each time.
                    _LOG.error("%s does not work (%s): retrying until it does", what, error)
                self.why = f"{what}: {error}" if str(error) else f"{what}: {type(error).__name__}"
                await self._clock.sleep_until(self._clock.now() + wait_s)
                wait_s = min(2 * wait_s, _WAIT_MAX_S)
            else:
                if not self.healthy:
                    _LOG.warning("%s works again", what)
                self.why = ""
                return result
