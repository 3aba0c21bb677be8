"""The check of lines: each request gets the result for its own lines, even with other requests at the same time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sources.http.judging import TURN_LINES, Judge
from infra.clock import SystemClock


def dead_among(lines: list[bytes]) -> list[tuple[int, str]]:
    assert len(lines) <= TURN_LINES
    return [(i, line.decode()) for i, line in enumerate(lines) if line.startswith(b"bad")]


def lines_of(request: list[bool], name: int) -> list[bytes]:
    return [b"good" if good else b"bad %d of %d" % (i, name) for i, good in enumerate(request)]


@given(st.lists(st.tuples(st.integers(1, 3 * TURN_LINES), st.integers(2, 2000)), min_size=1, max_size=6))
def test_each_request_hears_of_its_own_lines(requests: list[tuple[int, int]]) -> None:
    async def judged() -> None:
        judge = Judge(dead_among, SystemClock())
        lines = [lines_of([i % every != 1 for i in range(count)], n) for n, (count, every) in enumerate(requests)]
        verdicts = await asyncio.gather(*(judge.verdict(each) for each in lines))
        for n, ((count, every), verdict) in enumerate(zip(requests, verdicts, strict=True)):
            wanted = [i for i in range(count) if i % every == 1]
            assert (verdict.looked_at, verdict.dead) == (count, len(wanted))
            assert verdict.first == ((wanted[0], f"bad {wanted[0]} of {n}") if wanted else None)

    asyncio.run(judged())


class Ticking(SystemClock):
    """A clock on which each reading takes a second."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        self.now_s += 1.0
        return self.now_s


async def test_a_long_request_is_answered_in_time_with_what_was_looked_at() -> None:
    verdict = await Judge(dead_among, Ticking()).verdict([b"good", b"bad"] * 10 * TURN_LINES)
    assert (verdict.looked_at, verdict.dead) == (TURN_LINES, TURN_LINES // 2)


async def test_who_has_gone_is_not_judged() -> None:
    seen: list[bytes] = []

    def noted(lines: list[bytes]) -> list[tuple[int, str]]:
        seen.extend(lines)
        return []

    judge = Judge(noted, SystemClock())
    gone = asyncio.create_task(judge.verdict([b"gone"]))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await judge.verdict([b"here"])).looked_at == 1
    assert seen == [b"here"]


async def test_a_mistake_of_the_decoder_reaches_who_asked_and_nobody_later() -> None:
    def fails(lines: list[bytes]) -> list[tuple[int, str]]:
        if lines == [b"odd"]:
            raise RuntimeError("a mistake")
        return []

    judge = Judge(fails, SystemClock())
    with pytest.raises(RuntimeError, match="a mistake"):
        await judge.verdict([b"odd"])
    assert (await judge.verdict([b"fine"])).dead == 0
