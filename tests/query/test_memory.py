"""One bound on what all queries hold in memory, shared fairly."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gateway.query.flow.memory import MemoryPool
from tests.query.pipeline_site import Query
from tests.support.gateway_doubles import events
from tests.support.waiting import until

LIMIT, RUN = 1000, 10
QUERIES, RUNS, ROWS = 100, 8, 10
ROW_BYTES = events(0, ROWS - 1).nbytes // ROWS


def greedy(pool: MemoryPool, count: int) -> list[int]:
    """Let queries take runs in turn until none may take another; return what each holds."""
    shares = [pool.share() for _ in range(count)]
    going = True
    while going:
        going = False
        for share in shares:
            if share.held_bytes < share.bound_bytes:
                share.take(RUN)
                going = True
    return [share.held_bytes for share in shares]


@given(st.integers(1, 300))
def test_equally_busy_queries_hold_the_same_and_leave_room_for_one_more(count: int) -> None:
    pool = MemoryPool(LIMIT)
    held = greedy(pool, count)
    assert max(held) - min(held) <= RUN
    assert abs(max(held) - max(LIMIT / (count + 1), RUN)) <= RUN
    late = pool.share()
    assert late.held_bytes < late.bound_bytes, "a query that was idle finds room, whatever the others hold"


Step = tuple[int, str, int]
steps = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["run", "answer", "commit", "again"]), st.integers(1, 40))
)


@given(steps)
def test_the_pool_counts_what_its_shares_hold_and_stays_within_its_limit(played: list[Step]) -> None:
    pool = MemoryPool(LIMIT)
    shares = [pool.share() for _ in range(6)]
    runs: list[list[int]] = [[] for _ in shares]
    results = [0] * len(shares)
    for at, what, size in played:
        if what == "run" and shares[at].held_bytes < shares[at].bound_bytes:
            shares[at].take(size)
            runs[at].append(size)
        elif what == "answer" and runs[at]:
            answered = runs[at].pop()
            shares[at].give(answered)
            results[at] += answered
            shares[at].hold_results(results[at])
        elif what == "commit":
            results[at] = 0
            shares[at].hold_results(0)
        elif what == "again":
            ended, shares[at] = shares[at], shares[at].renewed()
            ended.give(size)
            ended.hold_results(size)
            runs[at], results[at] = [], 0
        assert [share.held_bytes for share in shares] == [sum(r) + n for r, n in zip(runs, results, strict=True)]
        assert pool.held_bytes == sum(share.held_bytes for share in shares) <= LIMIT + 40 * len(shares)
        assert all(share.results_bound_bytes >= 1 for share in shares)


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(1, 6))
def test_results_of_a_backlog_that_takes_all_of_its_bound_have_room_and_stay_within_the_limit(
    sizes: list[int], count: int
) -> None:
    pool = MemoryPool(LIMIT)
    shares = [pool.share() for _ in range(count)]
    for share in shares:
        while share.held_bytes < share.bound_bytes:
            share.take(RUN)
    if count == 1:
        assert shares[0].results_bound_bytes == (LIMIT - shares[0].held_bytes) // 4
    results = [0] * count
    for at, size in enumerate(sizes):
        share = shares[at % count]
        if results[at % count] < share.results_bound_bytes:
            results[at % count] += size
            share.hold_results(results[at % count])
    assert pool.held_bytes <= LIMIT + count * (RUN + max(sizes, default=0))


async def test_a_query_that_waits_goes_on_when_another_one_gives_back() -> None:
    pool = MemoryPool(100)
    stuck, waits = pool.share(), pool.share()
    stuck.take(60)
    waits.take(30)
    waiting = asyncio.create_task(waits.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    stuck.give(60)
    await until(waiting.done)


async def test_a_hundred_queries_whose_sinks_accept_nothing_stay_within_one_bound(tmp_path: Path) -> None:
    run_bytes = ROWS * ROW_BYTES
    pool = MemoryPool(3 * QUERIES * run_bytes)
    queries = [Query(tmp_path / str(at), memory=pool.share()) for at in range(QUERIES)]
    hosts = [query.add_host("home") for query in queries]
    offered, answered = [0] * QUERIES, [0] * QUERIES

    def answer(at: int) -> bool:
        for run in hosts[at].runs[answered[at] :]:
            hosts[at].consume(run)
            hosts[at].answer(run.first_seq, run.last_seq)
            answered[at] += 1
        return queries[at].pipeline.idle

    def has_room(at: int) -> bool:
        return queries[at].memory.held_bytes < queries[at].memory.bound_bytes

    def all_full() -> bool:
        for at, query in enumerate(queries):
            if has_room(at):
                query.offer(offered[at] * ROWS, offered[at] * ROWS + ROWS - 1)
                offered[at] += 1
            query.pipeline.end_slot(None, 0)
            answer(at)
        return not any(map(has_room, range(QUERIES)))

    async with AsyncExitStack() as stack:
        # Nothing is committed before deliveries run.
        await until(all_full, what="no query has room for another run")
        assert max(offered) - min(offered) <= 1, "they share it fairly"
        assert max(offered) < RUNS
        assert pool.limit_bytes // 2 < pool.held_bytes <= pool.limit_bytes + QUERIES * run_bytes
        for query in queries:
            await stack.enter_async_context(query.running())
        for at, query in enumerate(queries):
            for number in range(offered[at], RUNS):
                await until(lambda at=at: (answer(at), has_room(at))[1], query.clock, 0.1)  # type: ignore[misc]
                query.offer(number * ROWS, number * ROWS + ROWS - 1)
            await until(partial(answer, at), query.clock, 0.1)
            assert query.ids() == list(range(RUNS * ROWS))
    assert pool.held_bytes == 0
