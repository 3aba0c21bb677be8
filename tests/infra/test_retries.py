"""Successive tries, in the time of a clock that skips the pauses."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.retries import FailedTry, Outage, Retries
from tests.support.gateway_doubles import ManualClock
from tests.support.waiting import until


class Leaping(ManualClock):
    """Skips each sleep, and records when it began."""

    async def sleep_until(self, at_s: float) -> None:
        self.advance(max(0.0, at_s - self.now()))
        await super().sleep_until(at_s)


class Action:
    """Raises these errors, one at a time, and then returns "done"; ``at_s`` are the times of the tries."""

    def __init__(self, clock: ManualClock, *errors: Exception) -> None:
        self._clock = clock
        self._errors = list(errors)
        self.at_s: list[float] = []

    async def __call__(self) -> str:
        self.at_s.append(self._clock.now())
        await asyncio.sleep(0)
        if self._errors:
            raise self._errors.pop(0)
        return "done"

    @property
    def pauses_s(self) -> list[float]:
        return [round(after - before, 6) for before, after in pairwise(self.at_s)]


@pytest.fixture
def clock() -> Leaping:
    return Leaping()


@pytest.mark.parametrize("wrap", [lambda action: action, lambda action: lambda: action()], ids=["callable", "lambda"])
async def test_pauses_double_up_to_the_longest_one(
    clock: Leaping, wrap: Callable[[Action], Callable[[], Awaitable[str]]]
) -> None:
    action = Action(clock, *(OSError("no") for _ in range(6)))
    assert await Retries(first_s=0.5, most_s=5.0).retry(wrap(action), clock, OSError) == "done"
    assert action.pauses_s == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


@given(first_s=st.floats(0.001, 100.0), most_s=st.floats(0.001, 1000.0), failures=st.integers(0, 80))
def test_no_pause_is_longer_than_the_longest_one(first_s: float, most_s: float, failures: int) -> None:
    told: list[float] = []

    async def run() -> str:
        action = Action(clock := Leaping(), *(OSError("no") for _ in range(failures)))
        retries = Retries(first_s=first_s, most_s=most_s)
        return await retries.retry(action, clock, OSError, heard=lambda failed: told.append(failed.pause_s))

    assert asyncio.run(run()) == "done"
    assert len(told) == failures
    assert all(pause_s <= most_s * (1 + 1e-9) for pause_s in told)
    assert told == sorted(told)


async def test_the_error_of_the_last_try_is_raised_as_it_was(clock: Leaping) -> None:
    errors = [OSError(str(number)) for number in range(9)]
    action = Action(clock, *errors)
    with pytest.raises(OSError, match="2") as caught:
        await Retries(first_s=1.0, most_s=9.0, tries=3).retry(action, clock, OSError)
    assert caught.value is errors[2]
    assert action.pauses_s == [1.0, 2.0], "nobody pauses after the last try"


@pytest.mark.parametrize("error", [ValueError("another kind"), OSError("hopeless")])
async def test_what_is_not_worth_another_try_is_raised_at_once(clock: Leaping, error: Exception) -> None:
    action = Action(clock, OSError("no"), error)
    with pytest.raises(type(error)) as caught:
        await Retries(first_s=1.0, most_s=9.0).retry(
            action, clock, OSError, worth=lambda error: str(error) != "hopeless"
        )
    assert caught.value is error
    assert len(action.at_s) == 2


async def test_a_new_reason_is_news_and_the_same_again_is_not(clock: Leaping) -> None:
    heard: list[FailedTry] = []
    reasons = ["full", "full", "away", "away", "full"]
    action = Action(clock, *(OSError(reason) for reason in reasons))
    await Retries(first_s=1.0, most_s=2.0).retry(action, clock, OSError, heard=heard.append)
    assert [(str(failed.error), failed.number) for failed in heard] == list(zip(reasons, range(1, 6), strict=True))
    assert [failed.is_news for failed in heard] == [True, False, True, False, True]
    assert [failed.pause_s for failed in heard] == action.pauses_s == [1.0, 2.0, 2.0, 2.0, 2.0]


async def test_a_pause_is_as_long_as_the_error_wants_it(clock: Leaping) -> None:
    action = Action(clock, OSError("7"), OSError("0"), OSError("0"))
    await Retries(first_s=1.0, most_s=3.0).retry(action, clock, OSError, at_least_s=lambda error: float(str(error)))
    assert action.pauses_s == [7.0, 2.0, 3.0]


async def test_chance_shortens_pauses_and_is_the_caller_s() -> None:
    async def pauses_s(seed: int) -> list[float]:
        action = Action(clock := Leaping(), *(OSError("no") for _ in range(50)))
        await Retries(first_s=1.0, most_s=8.0).retry(action, clock, OSError, rng=random.Random(seed))
        return action.pauses_s

    first, again, other = await pauses_s(1), await pauses_s(1), await pauses_s(2)
    assert first == again != other
    assert max(first) <= 8.0
    assert max(first) - min(first) > 4.0


async def test_a_caller_that_is_cancelled_tries_no_more() -> None:
    clock = ManualClock()
    action = Action(clock, *(OSError("no") for _ in range(9)))
    waiting = asyncio.create_task(Retries(first_s=1.0, most_s=1.0).retry(action, clock, (OSError, TimeoutError)))
    await until(lambda: clock.sleeper_count == 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    clock.advance(100.0)
    assert len(action.at_s) == 1


async def test_an_outage_is_told_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock = ManualClock()
    outage = Outage(clock, (OSError,))
    action = Action(clock, *(OSError("away") for _ in range(4)))
    outlasting = asyncio.create_task(outage.outlast("the sink", lambda: action()))
    await until(lambda: outage.why == "the sink: away")
    assert not outage.healthy
    await until(outlasting.done, clock, 0.1)
    assert outlasting.result() == "done"
    assert (outage.healthy, outage.why) == (True, "")
    assert [record.getMessage() for record in caplog.records if record.name == "infra.retries"] == [
        "the sink does not work (away): retrying until it does",
        "the sink works again",
    ]
