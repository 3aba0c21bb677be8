"""The life of a query that fails: stopped, opened again, run alone; with hosts that the test controls."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.hosts.connection import Connection, QueryRefusedError
from gateway.hosts.enrol import HomeHost
from gateway.query.querystate import BrokenQueryError, ExhaustedHostError, LaneFailedError
from gateway.query.supervision.home import LOW_PRIORITY, Home
from gateway.query.supervision.supervisor import Supervisor
from gateway.sinks.base import FencedError
from infra.link.channel import LinkLost
from infra.link.keys.trust import Authority
from infra.rows.base import SourceError
from policies.failures.restarts import RestartTerms
from tests.support.fleet_doubles import KeptLinks, MemoryCloud
from tests.support.gateway_doubles import FakeLink, ManualClock
from tests.support.waiting import until

TERMS = RestartTerms(first_s=5.0, most_s=40.0)


class Query:
    """A query as its supervisor sees it: ``said`` lists the calls, ``on`` is the link that it is open on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.said: list[str] = []
        self.refusals: list[BaseException] = []
        self.error: BaseException | None = None
        self.on: object = None
        self.waits = True
        self.loses_host = False
        self.waited_s = 1.0
        self.trouble = ""
        self.idle = self.drained = self.started = False
        self.read_before = 10
        self.committed_before = 0
        self.isolating_s = 0.0
        self.tally = SimpleNamespace(latency=SimpleNamespace(weight=0.0), events_by_lane={})
        self.plan = object()
        self._connection: Connection | None = None
        self.move_due = self.renewal_due = False

    @property
    def lanes(self) -> dict[str, Any]:
        if self._connection is None:
            return {}
        waiting_s = self.waited_s if self.waits else None
        return {"home": SimpleNamespace(connection=self._connection, waiting_s=waiting_s, open_runs=0)}

    def failure(self) -> BaseException | None:
        return self.error if self.started else None

    async def restart_home(self, connection: Connection) -> None:
        if self.refusals:
            refusal = self.refusals.pop()
            if isinstance(refusal, LinkLost):
                connection.link.lose(str(refusal))
                await connection.lost()
            raise refusal
        self.said.append("open")
        self._connection, self.on = connection, connection.link
        self.error, self.started = None, True
        if self.loses_host:
            self.loses_host = False
            cast("FakeLink", connection.link).lose("kill -9")
            await connection.lost()

    async def lose_home(self, loss: object = None) -> None:
        self.said.append("lose home")
        self._connection = self.on = None

    async def close_on_hosts(self) -> None:
        self.said.append("close")

    async def move(self, _home: Connection) -> None:
        self.said.append("move")
        self.move_due = False
        if self.refusals:
            raise self.refusals.pop()

    async def renew(self) -> None:
        self.said.append("renew")
        self.renewal_due = self.started = False

    async def reopen(self) -> None:
        self.said.append("reopen")

    async def stop(self) -> None:
        self.said.append("stop")
        self.started = False
        self._connection = self.on = None


class Site:
    """Two queries, their supervisors, and private hosts in memory."""

    def __init__(self, folder: Path, links: KeptLinks, *, own_hosts: bool = False) -> None:
        self.links = links
        self.clock = ManualClock()
        self.cloud = MemoryCloud()
        authority, taken = Authority.open(folder / "trust"), set[str]()
        self.queries = {name: Query(name) for name in ("a", "b")}
        self.home = Home(
            lambda role: HomeHost(self.cloud, authority, 60.0, self.clock, taken, role, links),
            {"master": "local[1]"},
            cast("Any", self.queries),
            self.clock,
            keep_standby=False,
            own_hosts=own_hosts,
        )
        self.opened: list[tuple[str, bool]] = []
        self.closed: list[str] = []
        profiler = SimpleNamespace(query_closed=self.closed.append, lane_closed=lambda *_: None)
        self.supervisors = {
            name: Supervisor(
                cast("Any", query),
                self.home,
                TERMS,
                cast("Any", profiler),
                self.clock,
                lambda query, on_trial: self.opened.append((query.name, on_trial)),
            )
            for name, query in self.queries.items()
        }
        self.a, self.b = self.queries["a"], self.queries["b"]

    async def begin(self) -> None:
        await self.home.connect()
        self.home.watch()
        for supervisor in self.supervisors.values():
            supervisor.begin()

    async def state(self, name: str, state: str, step_s: float = 0.0) -> Supervisor:
        supervisor = self.supervisors[name]

        def reached() -> bool:
            for each in self.supervisors.values():
                each.look()
            return supervisor.state == state

        await until(reached, self.clock, step_s)
        return supervisor

    async def end(self) -> None:
        for supervisor in self.supervisors.values():
            await supervisor.end()
            assert supervisor.mistake is None
        await self.home.stop_watching()
        await self.home.end(keep=False)
        assert self.cloud.nodes == {}, "no host is left"


@pytest.fixture
def links() -> KeptLinks:
    return KeptLinks()


@pytest.fixture
async def site(tmp_path: Path, links: KeptLinks) -> AsyncIterator[Site]:
    site = Site(tmp_path, links)
    await site.begin()
    await site.state("a", "running")
    await site.state("b", "running")
    yield site
    await site.end()


async def test_a_query_moves_when_it_is_due(site: Site) -> None:
    site.a.move_due = True
    await site.state("a", "running")
    await until(lambda: not site.a.move_due)
    assert site.a.said == ["open", "move"]
    assert site.b.said == ["open"]


async def test_a_query_is_opened_again_with_the_new_content_of_its_tables_and_that_is_no_failure(site: Site) -> None:
    site.a.renewal_due = True
    await site.state("a", "running")
    await until(lambda: site.a.said == ["open", "renew", "open"])
    assert (await site.state("a", "running")).failures == 0
    assert site.b.said == ["open"]


async def test_a_query_that_can_be_opened_nowhere_after_a_move_has_failed(site: Site) -> None:
    site.a.refusals = [QueryRefusedError("home refuses it")]
    site.a.move_due = True
    failed = await site.state("a", "failed")
    assert failed.reason == "home refuses it"
    assert site.a.said == ["open", "move", "close", "stop"]
    assert (await site.state("b", "running")).reason == ""


async def test_a_query_that_fails_is_stopped_and_opened_again_while_the_other_runs(site: Site) -> None:
    site.a.error = SourceError("the file is damaged")
    failed = await site.state("a", "failed")
    assert (failed.reason, failed.trouble) == ("the file is damaged", "failed: the file is damaged")
    assert failed.since_wall_s is not None
    assert failed.retry_in_s == pytest.approx(5.0)
    await until(lambda: site.closed == ["a"])
    assert site.a.said == ["open", "close", "stop"]
    again = await site.state("a", "running", step_s=1.0)
    assert (again.reason, again.since_wall_s, again.failures, again.trouble) == ("", None, 0, "")
    assert site.b.said == ["open"], "the other one was left alone"
    assert len(site.links.all) == 1, "and so was the host"


async def test_pauses_grow_and_after_three_failures_nothing_is_expected_any_more(site: Site) -> None:
    pauses = []
    for failure in range(1, 6):
        site.a.error = SourceError("the file is damaged")
        supervisor = await site.state("a", "failed")
        assert supervisor.failures == failure
        assert supervisor.hopeless == (failure >= 3)
        pauses.append(round(supervisor.retry_in_s or 0.0))
        await site.state("a", "running", step_s=1.0)
    assert pauses == [5, 10, 20, 40, 40]


async def test_a_query_whose_rows_took_long_to_judge_pauses_for_longer(site: Site) -> None:
    site.a.isolating_s = 2.0
    site.a.error = BrokenQueryError("more than 20 of 1,000 rows fail")
    supervisor = await site.state("a", "failed")
    assert supervisor.retry_in_s == pytest.approx(38.0)
    assert supervisor.hopeless, "what runs until drained does not wait for its long pauses"


async def test_a_query_that_was_fenced_is_not_opened_again(site: Site) -> None:
    site.a.error = FencedError("another gateway writes here")
    supervisor = await site.state("a", "given up")
    assert supervisor.hopeless
    assert supervisor.retry_in_s is None
    site.clock.advance(10_000.0)
    assert site.supervisors["b"].state == "running"


async def test_a_refused_query_is_tried_again(tmp_path: Path, links: KeptLinks) -> None:
    site = Site(tmp_path, links)
    site.a.refusals = [QueryRefusedError("no such column"), ValueError("a mistake that nobody expected")]
    await site.begin()
    await site.state("b", "running")
    a = site.supervisors["a"]
    await until(lambda: (a.state, a.failures, a.reason) == ("failed", 1, "a mistake that nobody expected"))
    await until(lambda: (a.state, a.failures, a.reason) == ("failed", 2, "no such column"), site.clock, 0.25)
    await site.state("a", "running", step_s=0.25)
    await site.end()


async def test_a_lost_host_is_no_failure(site: Site) -> None:
    site.links.all[0].lose("kill -9")
    await until(lambda: len(site.links.all) == 2 and site.a.on is site.links.all[1] and site.b.on is site.links.all[1])
    assert site.a.said == ["open", "lose home", "open"]
    assert site.opened == [("a", False), ("b", False)] * 2


async def test_a_host_that_is_lost_just_after_the_query_was_opened_is_let_go_of(
    tmp_path: Path, links: KeptLinks
) -> None:
    site = Site(tmp_path, links)
    site.a.loses_host = True
    await site.begin()
    await until(lambda: len(site.links.all) == 2 and site.a.on is site.links.all[1])
    assert site.a.said == ["open", "lose home", "open"]
    assert site.supervisors["a"].failures == 0
    await site.end()


async def test_a_query_that_dies_with_its_host_has_not_failed(site: Site) -> None:
    site.a.error = LaneFailedError("the stream ended by itself")
    for supervisor in site.supervisors.values():
        supervisor.look()
    await asyncio.sleep(0)
    site.links.all[0].lose("Spark's JVM ended")
    await until(lambda: len(site.links.all) == 2 and site.a.on is site.links.all[1])
    assert site.supervisors["a"].failures == 0


async def test_a_host_that_answers_no_query_is_replaced_and_one_that_answers_another_is_not(site: Site) -> None:
    site.a.waited_s = 100.0
    site.a.error = LaneFailedError("it got no answer for 100 s")
    await site.state("a", "failed")
    assert len(site.links.all) == 1, "the other query is answered"
    await site.state("a", "running", step_s=1.0)
    site.b.waited_s = 100.0
    site.a.error = LaneFailedError("it got no answer for 100 s")
    await until(lambda: _looked(site) and len(site.links.all) == 2 and site.b.on is site.links.all[1])
    assert site.supervisors["a"].failures == 0
    assert "failed" not in [supervisor.state for supervisor in site.supervisors.values()]


async def test_the_guilty_one_is_found_alone_and_the_other_suspect_is_cleared(site: Site) -> None:
    (connection,) = {lane.connection for query in site.queries.values() for lane in query.lanes.values()}
    connection.suspects = ("a", "b")
    site.links.all[0].lose("Spark's JVM ended")
    await until(lambda: ("a", True) in site.opened)
    alone = site.a.on
    assert site.b.on is None, "one after the other"
    assert isinstance(alone, FakeLink)
    alone.lose("Spark's JVM ended")
    failed = await site.state("a", "failed")
    assert failed.reason == "it ended the engine host on which it ran alone: Spark's JVM ended"
    await until(lambda: site.b.on is not None)
    assert site.opened[-1] == ("b", False), "it runs with the others without having been tried"
    shared = site.b.on
    # It stays alone when it is opened again, until it does no harm.
    await until(lambda: site.a.on is not None, site.clock, 1.0)
    assert site.opened[-1] == ("a", True)
    assert site.a.on is not shared
    site.a.committed_before = 10
    await site.state("a", "running")
    await until(lambda: _looked(site) and site.a.on is shared)
    assert site.opened[-1] == ("a", False)


def _looked(site: Site) -> bool:
    for supervisor in site.supervisors.values():
        supervisor.look()
    return True


async def test_suspects_that_do_no_harm_run_with_the_others_again(site: Site) -> None:
    (connection,) = {lane.connection for query in site.queries.values() for lane in query.lanes.values()}
    connection.suspects = ("a", "b")
    site.a.committed_before = site.b.committed_before = 10
    site.links.all[0].lose("Spark's JVM ended")
    await until(lambda: _looked(site) and site.opened.count(("b", False)) == 2)
    assert site.a.on is site.b.on
    assert ("a", True) in site.opened
    assert ("b", True) in site.opened
    await until(lambda: len(site.cloud.nodes) <= 2)


async def test_a_query_that_exhausts_the_memory_of_the_shared_host_runs_alone_until_it_does_no_harm(site: Site) -> None:
    shared = site.a.on
    (connection,) = {lane.connection for query in site.queries.values() for lane in query.lanes.values()}
    assert connection.shared
    site.a.error = ExhaustedHostError("it needed more memory than the engine host has")
    failed = await site.state("a", "failed")
    assert failed.retry_in_s == pytest.approx(38.0), "the launch of a host takes CPU time from the others"
    assert not failed.hopeless
    await until(lambda: _looked(site) and ("a", True) in site.opened, site.clock, 1.0)
    assert (site.a.on is shared, site.b.on is shared, site.b.said) == (False, True, ["open"])
    (alone,) = {lane.connection for lane in site.a.lanes.values()}
    assert not alone.shared
    site.a.error = BrokenQueryError("more than 3 rows of a run need more memory")
    await site.state("a", "failed")
    # It stays alone when it is opened again, until it does no harm.
    await until(lambda: site.opened.count(("a", True)) == 2, site.clock, 1.0)
    site.a.committed_before = 10
    await until(lambda: _looked(site) and site.a.on is shared)
    assert site.b.said == ["open"]


async def test_a_query_that_ends_the_host_while_it_is_opened_is_found_too(site: Site) -> None:
    site.b.waits = False
    site.a.error = SourceError("once")
    await site.state("a", "failed")
    site.a.refusals = [LinkLost("Spark's JVM ended") for _ in range(3)]
    await until(
        lambda: _looked(site) and site.supervisors["a"].reason.startswith("it ended the engine host"), site.clock, 0.5
    )
    await until(lambda: site.b.on is not None)
    assert ("b", True) not in site.opened, "it had nothing to do with it"


async def test_with_hosts_of_their_own_only_the_query_of_the_lost_one_fails(tmp_path: Path, links: KeptLinks) -> None:
    site = Site(tmp_path, links, own_hosts=True)
    await site.begin()
    await site.state("a", "running")
    await site.state("b", "running")
    assert site.a.on is not site.b.on
    assert isinstance(site.a.on, FakeLink)
    site.a.on.lose("Spark's JVM ended")
    await site.state("a", "failed")
    assert site.b.said == ["open"]
    await site.state("a", "running", step_s=1.0)
    await site.end()


async def test_a_stateful_query_that_is_not_answered_is_opened_again_once(site: Site) -> None:
    site.supervisors["a"].reopen("seq 7 is overdue")
    await until(lambda: site.a.said == ["open", "reopen"])
    site.a.tally.latency.weight = 5.0
    site.supervisors["a"].reopen("seq 9 is overdue")
    await until(lambda: site.a.said == ["open", "reopen", "reopen"])
    site.supervisors["a"].reopen("seq 9 is overdue")
    failed = await site.state("a", "failed")
    assert failed.reason == "it gets no answers although it was opened again: seq 9 is overdue"
    assert len(site.links.all) == 1


def test_the_host_of_suspects_gets_the_cpu_time_that_the_others_leave() -> None:
    group = Path("/proc/self/autogroup")
    for command, wanted in (("nice", "19"), (f"cat {group}", "nice 19" if group.exists() else "")):
        said = subprocess.run([*LOW_PRIORITY, *command.split()], start_new_session=True, stdout=subprocess.PIPE)
        assert said.stdout.decode().strip().endswith(wanted)
