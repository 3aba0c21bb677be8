"""A WAN outage of ten minutes, in virtual time: 0 lost, 0 twice, in order, and late answers are fenced.

test_actuator.py tests what happens to the VM meanwhile; tests/wan has shorter outages of a real WAN.
"""

from __future__ import annotations

import pytest

from gateway.query.flow.dispatcher import Loss
from policies.signals import HOME
from tests.query.pipeline_site import Query, query, serving
from tests.support.gateway_doubles import FakeHost
from tests.support.waiting import until

__all__ = ["query"]

UNNOTICED_S, CUT_S = 2.5, 600.0
RUN_EVENTS = 10


class Events:
    """Runs that come even during the WAN outage."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self.count = 0

    async def come(self, runs: int, for_s: float) -> None:
        for _ in range(runs):
            self._query.offer(self.count, self.count + RUN_EVENTS - 1)
            self.count += RUN_EVENTS
            end_s = self._query.clock.now() + for_s / runs
            await until(lambda end_s=end_s: self._query.clock.now() >= end_s, self._query.clock, for_s / runs / 4)  # type: ignore[misc]


def answer_all(host: FakeHost, since: int) -> None:
    for run in host.runs[since:]:
        host.answer(run.first_seq, run.last_seq)


@pytest.mark.parametrize("downwards", [False, True], ids=["nothing gets through", "answers are late"])
async def test_a_cut_of_ten_minutes_loses_nothing_and_doubles_nothing(query: Query, downwards: bool) -> None:
    events = Events(query)
    home, far = query.add_host(HOME), query.add_host("vm-1")
    async with query.running(), serving(home):
        query.pipeline.set_shares({HOME: 0.5, "vm-1": 0.5})
        async with serving(far):
            await events.come(10, 10.0)
            await query.all_committed()
        before = len(far.runs)
        await events.come(5, UNNOTICED_S)
        under_way = [seq for run in far.runs[before:] for seq in range(run.first_seq, run.last_seq + 1)]
        assert before > 0
        assert under_way, "the cut meets runs on their way"
        await query.pipeline.remove_lane("vm-1", Loss("no heartbeat from vm-1 for 2.5 s", query.clock.now()))
        await events.come(120, CUT_S - UNNOTICED_S)
        await query.all_committed()
        assert query.ids() == [*range(events.count)], "nobody waits for the end of the cut"

        again = query.add_host("vm-2")
        query.pipeline.set_shares({HOME: 0.5, "vm-2": 0.5})
        if downwards:
            answer_all(far, before)
        async with serving(again):
            await events.come(10, 10.0)
            await query.all_committed()
        assert again.runs, "the next VM serves"
        assert far.link.closed_with is None, "an answer that comes late is no offence"
        assert query.memory.held_bytes == 0
    rows = query.rows()
    assert [row["id"] for row in rows] == [*range(events.count)], "each once, in order"
    assert {row["lane"] for row in rows if row["id"] in under_way} == {HOME}
