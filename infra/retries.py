"""Retries: pauses that double, and what waits until a disk, a broker or a store works again."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_never,
    wait_exponential,
)

from infra.clock import Clock

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTry:
    """A try that failed and is followed by another.

    Attributes:
        error: what it raised.
        number: how many tries there were so far.
        pause_s: the time until the next try.
        is_news: whether the reason is another one than that of the try before.
    """

    error: BaseException
    number: int
    pause_s: float
    is_news: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often something is tried, with pauses that double.

    Attributes:
        first_s: the pause after the first failure.
        most_s: the longest pause.
        tries: how many tries there are at most; None retries until one succeeds or the caller is cancelled.
    """

    first_s: float
    most_s: float
    tries: int | None = None

    async def retry(
        self,
        action: Callable[[], Awaitable[T]],
        clock: Clock,
        errors: type[Exception] | tuple[type[Exception], ...],
        *,
        worth: Callable[[BaseException], bool] = lambda _: True,
        heard: Callable[[FailedTry], None] = lambda _: None,
        at_least_s: Callable[[BaseException], float] = lambda _: 0.0,
        rng: random.Random | None = None,
    ) -> T:
        """Return what ``action`` returns, once it does.

        Args:
            action: is called for each try.
            clock: measures pauses.
            errors: are followed by another try.
            worth: returns whether an error among them is followed by another try after all.
            heard: is called after each failed try that is followed by another, before the pause.
            at_least_s: returns the shortest pause after an error, in seconds.
            rng: shortens each pause by a random part, so that several callers do not retry together.

        Raises:
            Exception: the error of the last try, as it was raised.
        """
        doubling = wait_exponential(multiplier=self.first_s, max=self.most_s)
        reason = ""

        def pause_s(state: RetryCallState) -> float:
            own_s = doubling(state) * (1.0 if rng is None else rng.random())
            return max(own_s, at_least_s(_error(state)))

        def tell(state: RetryCallState) -> None:
            nonlocal reason
            error, before = _error(state), reason
            reason = repr(error)
            heard(
                FailedTry(
                    error=error,
                    number=state.attempt_number,
                    pause_s=state.upcoming_sleep,
                    is_news=reason != before,
                )
            )

        async def attempt() -> T:
            # tenacity would not await what a lambda returns.
            return await action()

        async def sleep(pause_s: float) -> None:
            await clock.sleep_until(clock.now() + pause_s)

        retrying = AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, errors) and worth(error)),
            stop=stop_never if self.tries is None else stop_after_attempt(self.tries),
            wait=pause_s,
            sleep=sleep,
            before_sleep=tell,
            reraise=True,
        )
        return await retrying(attempt)


def _error(state: RetryCallState) -> BaseException:
    error = None if state.outcome is None else state.outcome.exception()
    assert error is not None, "only a try that failed is followed by another"
    return error


_OUTAGE: Final = Retries(first_s=0.2, most_s=5.0)


class Outage:
    """Retries an action until it succeeds. Meanwhile ``why`` holds the reason, and the gateway is not ready.

    There is no last try: what waits here has not been acknowledged to anybody and must not be lost, and whoever
    waits is cancelled when the gateway ends.

    Args:
        clock: time.
        errors: what counts as an outage; everything else is raised.
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
        result = await _OUTAGE.retry(
            action, self._clock, self._errors, heard=lambda failed: self._note(what, failed.error)
        )
        if not self.healthy:
            _LOG.warning("%s works again", what)
        self.why = ""
        return result

    def _note(self, what: str, error: BaseException) -> None:
        if self.healthy:
            # Log it once, not at each retry.
            _LOG.error("%s does not work (%s): retrying until it does", what, error)
        self.why = f"{what}: {error}" if str(error) else f"{what}: {type(error).__name__}"
