"""What happens to work whose caller is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from infra.together import await_shared, wait_out
from tests.support.waiting import until


class Work:
    """Ends when the test allows it, or when it is cancelled and does not ignore that."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.ended = ""

    async def __call__(self) -> str:
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        self.ended = "by itself"
        return "done"


async def turns(count: int = 5) -> None:
    """Let everything run that can."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("cancellations", [1, 2, 3])
async def test_a_caller_goes_on_when_its_work_has_ended_however_often_it_is_cancelled(cancellations: int) -> None:
    work = Work()
    caller = asyncio.create_task(wait_out(work()))
    await work.begun.wait()
    for _ in range(cancellations):
        caller.cancel()
        await turns()
        assert (caller.done(), work.ended) == (False, "")
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert work.ended == "by itself"


async def test_work_that_takes_too_long_is_cancelled_too() -> None:
    work = Work()
    caller = asyncio.create_task(wait_out(work(), within_s=0.01))
    await work.begun.wait()
    assert not caller.done(), "the limit is for cancelled callers"
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert work.ended == "cancelled"


async def test_a_deadline_of_the_caller_is_still_one() -> None:
    work = Work()
    asyncio.get_running_loop().call_later(0.05, work.may_end.set)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await wait_out(work())
    assert work.ended == "by itself"


async def test_what_work_returns_and_raises_is_passed_on() -> None:
    async def fail() -> None:
        raise OSError("gone")

    work = Work()
    work.may_end.set()
    assert await wait_out(work()) == "done"
    with pytest.raises(OSError, match="gone"):
        await wait_out(fail())


async def test_shared_work_goes_on_for_the_others() -> None:
    work = Work()
    shared = asyncio.ensure_future(work())
    first, second = (asyncio.create_task(await_shared(shared)) for _ in range(2))
    await work.begun.wait()
    first.cancel()
    await until(first.done)
    work.may_end.set()
    assert await second == "done"
    assert first.cancelled()
