"""The private engine host and the one that stands by, on machines in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fleet_doubles import Dialler, MemoryCloud, boot_error
from gateway_doubles import FakeLink, settle, until

from gateway import hosts
from gateway.config.models import Config
from gateway.connection import Connection, QueryRefusedError
from gateway.home import Home, make_home
from gateway.hosts import HomeHost
from gateway.mastercheck import MasterAwayError
from infra.link.channel import LinkLost
from infra.link.trust import Authority
from tests.leaping_clock import LeapingClock

TAGS = {"master": "local[1]"}


class Links(Dialler):
    """Keeps every link, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[FakeLink] = []

    async def __call__(self, *arguments: Any) -> Connection:
        connection = await super().__call__(*arguments)
        self.all.append(self.links["home"])
        return connection


class Query:
    """A query as ``Home`` sees it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.on: list[object] = []
        self.tally = SimpleNamespace(latency=SimpleNamespace(weight=0.0))
        self.pipeline = SimpleNamespace(idle=False)
        self.refusals: list[Exception] = []
        self.cold = asyncio.Event()
        self.cold.set()

    async def warm(self, connection: Connection) -> None:
        await self.cold.wait()
        self.said.append("warm")

    async def lose_home(self, loss: object = None) -> None:
        self.said.append("lose")

    async def restart_home(self, connection: Connection) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.said.append("restart")
        self.on.append(connection.link)

    async def reopen(self) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.said.append("reopen")


class Site:
    """A ``Home`` over machines in memory."""

    def __init__(
        self,
        folder: Path,
        *,
        cloud: MemoryCloud | None = None,
        keep_standby: bool = True,
        master: Callable[[], None] = lambda: None,
    ) -> None:
        self.cloud = cloud or MemoryCloud()
        self.query = Query()
        authority, taken = Authority.open(folder / "trust"), set[str]()
        self.home = Home(
            lambda: HomeHost(self.cloud, authority, 60.0, LeapingClock(), taken),
            TAGS,
            cast("Any", {"q": self.query}),
            cast("Any", SimpleNamespace(lane_closed=lambda _: None)),
            LeapingClock(),
            keep_standby=keep_standby,
            probes={"the private Spark": master},
        )

    async def begin(self) -> None:
        await self.home.connect()
        self.home.watch()

    async def end(self, *, keep: bool = False) -> None:
        await self.home.stop_watching()
        await self.home.end(keep=keep)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> Links:
    links = Links()
    monkeypatch.setattr(hosts, "dial", links)
    return links


@pytest.fixture
async def site(tmp_path: Path, links: Links) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    await site.begin()
    await until(lambda: site.query.said == ["warm"])
    yield site
    await site.end()
    assert site.home.failure is None
    assert site.cloud.nodes == {}, "no host is left"


async def test_the_host_that_stands_by_takes_over_and_another_stands_by(site: Site, links: Links) -> None:
    first, second = list(site.cloud.nodes)
    links.all[0].lose("kill -9")
    await until(lambda: site.query.said == ["warm", "lose", "restart", "warm"])
    assert site.query.on == [links.all[1]]
    assert first not in site.cloud.nodes, "the one before is ended"
    assert next(iter(site.cloud.nodes)) == second
    assert (len(site.cloud.nodes), site.cloud.created) == (2, 3)
    links.all[1].lose("kill -9")
    await until(lambda: site.query.on == links.all[1:3])


async def test_a_standby_that_is_on_its_way_is_waited_for(tmp_path: Path, links: Links) -> None:
    site = Site(tmp_path)
    site.query.cold.clear()
    await site.begin()
    await until(lambda: len(links.all) == 2)
    links.all[0].lose("kill -9")
    await until(lambda: site.query.said == ["lose"])
    site.query.cold.set()
    await until(lambda: "restart" in site.query.said)
    assert site.query.on == [links.all[1]]
    await site.end()
    assert site.cloud.nodes == {}


async def test_a_standby_that_dies_is_replaced(site: Site, links: Links) -> None:
    links.all[1].lose("kill -9")
    await until(lambda: site.query.said == ["warm", "warm"])
    links.all[0].lose("kill -9")
    await until(lambda: bool(site.query.on))
    assert site.query.on == [links.all[2]]


async def test_without_a_standby_that_starts_the_host_is_started_anew(tmp_path: Path, links: Links) -> None:
    site = Site(tmp_path)
    await site.home.connect()
    site.cloud.refusals = [boot_error("home") for _ in range(3)]
    site.home.watch()
    await until(lambda: site.query.said == ["warm"])
    assert not site.cloud.refusals, "it was tried again until there was one"
    site.query.refusals.append(QueryRefusedError("its Spark is no good"))
    links.all[0].lose("kill -9")
    await until(lambda: "restart" in site.query.said)
    assert site.query.on == [links.all[2]], "neither the lost one nor the one that refused"
    await site.end()
    assert site.cloud.nodes == {}


async def test_the_next_gateway_finds_both_and_the_older_one_has_the_queries(
    tmp_path: Path, links: Links, caplog: pytest.LogCaptureFixture
) -> None:
    before = Site(tmp_path)
    await before.begin()
    await until(lambda: before.query.said == ["warm"])
    await before.end(keep=True)
    assert "is lost" not in caplog.text, "a link that is closed in order is no loss: no other host is started for it"
    old = list(before.cloud.nodes)
    after = Site(tmp_path, cloud=before.cloud)
    await after.begin()
    await until(lambda: after.query.said == ["warm"])
    assert (list(after.cloud.nodes), after.cloud.created) == (old, 2)
    await after.end()
    assert after.cloud.nodes == {}


async def test_a_gateway_without_standby_ends_the_one_of_an_earlier_gateway(tmp_path: Path, links: Links) -> None:
    before = Site(tmp_path)
    await before.begin()
    await until(lambda: before.query.said == ["warm"])
    await before.end(keep=True)
    first = next(iter(before.cloud.nodes))
    after = Site(tmp_path, cloud=before.cloud, keep_standby=False)
    await after.begin()
    assert list(after.cloud.nodes) == [first]
    await after.end()


async def test_a_gateway_told_to_stop_while_the_standby_starts_leaves_none(tmp_path: Path, links: Links) -> None:
    site = Site(tmp_path)
    site.query.cold.clear()
    await site.begin()
    await until(lambda: len(links.all) == 2)
    await site.end(keep=True)
    assert len(site.cloud.nodes) == 1, "one that is not ready is of no use to the next gateway"


async def test_a_query_that_is_not_answered_is_opened_again_and_if_that_does_not_help_the_host_is_replaced(
    site: Site, links: Links
) -> None:
    site.home.reopen("q", "seq 7 is overdue")
    site.home.reopen("q", "seq 7 is overdue")
    await until(lambda: site.query.said == ["warm", "reopen"])
    site.query.tally.latency.weight = 5.0
    await asyncio.sleep(0)
    site.home.reopen("q", "seq 9 is overdue")
    await until(lambda: site.query.said == ["warm", "reopen", "reopen"])
    assert links.all[0].closed_with is None, "answers came in between"
    await settle()
    site.home.reopen("q", "seq 9 is overdue")
    await until(lambda: site.query.on == [links.all[1]])


async def test_a_query_that_cannot_be_opened_again_costs_the_host(site: Site, links: Links) -> None:
    site.query.refusals.append(LinkLost("no answer"))
    site.home.reopen("q", "seq 7 is overdue")
    await until(lambda: site.query.on == [links.all[1]])


async def test_losses_between_which_the_query_got_on_are_lived_with_and_others_are_not(
    tmp_path: Path, links: Links
) -> None:
    site = Site(tmp_path, keep_standby=False)
    await site.begin()
    for losses in range(1, 12):
        site.query.tally.latency.weight += losses < 8
        links.all[-1].lose("kill -9")
        if losses < 11:
            await until(lambda losses=losses: site.query.said.count("restart") == losses)  # type: ignore[misc]
            assert site.home.failure is None
    await until(lambda: site.home.failure is not None)
    assert site.home.failure == "the private engine host was lost 5 times in a short time, now: kill -9"
    await site.end()


async def test_a_master_that_is_away_is_waited_for_and_costs_no_host(tmp_path: Path, links: Links) -> None:
    away = False

    def master() -> None:
        if away:
            raise MasterAwayError("nobody there")

    site = Site(tmp_path, keep_standby=False, master=master)
    await site.begin()
    for number in range(8):  # more often than a host may be lost in a short time
        away = True
        links.all[-1].lose("Spark died")
        await until(lambda: site.home.trouble != "")
        assert site.home.trouble == "the private Spark: private.spark.master: nobody there"
        assert len(links.all) == number + 1, "no host is tried meanwhile"
        away = False
        await until(lambda: site.query.said.count("restart") == number + 1)  # noqa: B023 -- waited for here
        assert site.home.trouble == ""
    assert site.home.failure is None
    await site.end()


def test_a_host_with_other_spark_settings_has_other_tags(tmp_path: Path) -> None:
    def tags(spark: dict[str, Any]) -> dict[str, str]:
        query = {"source": {"type": "http", "listen": "127.0.0.1:0"}, "schema": "id STRING", "sql": "SELECT 1"}
        query |= {"sink": {"type": "file", "path": str(tmp_path / "out")}, "qos": {"latency": "1s"}}
        said = {"gateway": {"state_dir": str(tmp_path)}, "private": {"spark": spark}, "queries": {"q": query}}
        config = Config.model_validate(said)
        nothing = cast("Any", SimpleNamespace())
        return make_home(config, nothing, {}, nothing, LeapingClock())._tags

    some, other = tags({"memory": "1GiB"}), tags({"memory": "2GiB"})
    assert tags({}).keys() == {"version", "master", "cpus"}
    assert some["spark"] != other["spark"]
    assert some == tags({"memory": "1GiB"})
