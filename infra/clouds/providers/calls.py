"""Blocking calls to a provider: each in its own thread, with a deadline and a few retries.

libcloud has no deadline for a whole call, and one driver serves one thread at a time. So each thread has its own
driver. When the deadline is over, the caller stops waiting, although the thread cannot be stopped.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from infra.clock import Clock
from infra.clouds.base import ThrottledError, UnavailableError
from infra.clouds.providers.errors import our_errors
from infra.retries import FailedTry, Retries
from infra.together import await_shared

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)
_THREADS: Final = 4
_TRIES: Final = 6
_PAUSES: Final = Retries(first_s=1.0, most_s=20.0, tries=_TRIES)
_TOLD_MAX_S: Final = 120.0
"""If a provider asks for a longer pause than this, the call fails at once instead of waiting."""


class Calls:
    """Calls to one provider.

    Args:
        connect: creates a driver; called once for each thread.
        where: provider and place, for people.
        clock: measures pauses.
        call_s: the deadline of a call.
        rng: varies the pauses; None: one of its own.
    """

    def __init__(
        self, connect: Callable[[], Any], where: str, clock: Clock, call_s: float, rng: random.Random | None = None
    ) -> None:
        self._connect = connect
        self._where = where
        self._clock = clock
        self._call_s = call_s
        self._rng = rng or random.Random()  # noqa: S311  # no secret
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="cloud")
        self._own = threading.local()
        self._running: set[asyncio.Future[Any]] = set()

    async def ask(self, what: str, call: Callable[[Any], T], on_retry: Callable[[str], None] | None = None) -> T:
        """Return what ``call`` returns, given a driver; throttled and failed calls are retried.

        Args:
            what: for people.
            call: must be safe to repeat.
            on_retry: called with the reason of each retry.

        Raises:
            CloudError: of the kind that fits, after the last try.
        """

        def heard(failed: FailedTry) -> None:
            if failed.is_news:
                _LOG.warning("%s (try %d of %d): %s", what, failed.number, _TRIES, failed.error)
            if on_retry is not None:
                on_retry(f"{failed.error}; retry in {failed.pause_s:.0f} s")

        return await _PAUSES.retry(
            lambda: self.ask_once(call),
            self._clock,
            (ThrottledError, UnavailableError),
            worth=lambda error: _told_s(error) <= _TOLD_MAX_S,
            heard=heard,
            at_least_s=_told_s,
            rng=self._rng,
        )

    async def ask_once(self, call: Callable[[Any], T]) -> T:
        """Return what ``call`` returns, given a driver.

        Raises:
            CloudError: of the kind that fits; also UnavailableError after the deadline, and then the call may still
                run.
        """

        def work() -> T:
            with our_errors(self._where):
                if not hasattr(self._own, "driver"):
                    self._own.driver = self._connect()
                return call(self._own.driver)

        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        self._running.add(running)
        running.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(self._call_s):
                return await await_shared(running)
        except TimeoutError as error:
            raise UnavailableError(f"{self._where} did not answer within {self._call_s:g} s") from error

    async def quiet(self, within_s: float) -> bool:
        """Wait until no call runs in any thread, abandoned calls included; return whether that is so."""
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=within_s)
        return not self._running

    def close(self) -> None:
        """Accept no more calls; those that run end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._running.discard(future)
        if not future.cancelled():
            future.exception()  # its caller stopped waiting for it, and logged that


def _told_s(error: BaseException) -> float:
    """Return the pause that the provider asks for."""
    return error.after_s if isinstance(error, ThrottledError | UnavailableError) else 0.0
