"""The private engine host and its standby, on machines in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.hosts.connection import Connection
from gateway.hosts.enrol import HomeHost
from gateway.hosts.hostkeeper import HostKeeper
from gateway.hosts.mastercheck import MasterAwayError
from gateway.hosts.standby import Standby
from infra.link.keys.trust import Authority
from tests.leaping_clock import LeapingClock
from tests.support.fleet_doubles import KeptLinks, MemoryCloud, boot_error
from tests.support.waiting import until

TAGS = {"master": "local[1]"}


class Site:
    """A keeper of one host, over machines in memory; ``warmed`` counts how often a standby was warmed up."""

    def __init__(
        self, folder: Path, links: KeptLinks, *, cloud: MemoryCloud | None = None, keep_standby: bool = True
    ) -> None:
        self.cloud = cloud or MemoryCloud()
        self.warmed = 0
        self.refusals: list[Exception] = []
        self.cold = asyncio.Event()
        self.cold.set()
        self.got_on = True
        self.disk_is_full = self.master_is_away = False
        self.clock = LeapingClock()
        authority, taken = Authority.open(folder / "trust"), set[str]()
        make_host = lambda: HomeHost(self.cloud, authority, 60.0, self.clock, taken, dial=links)  # noqa: E731
        self.keeper = HostKeeper(
            "the private engine host",
            make_host,
            TAGS,
            self.clock,
            standby=Standby(make_host, TAGS, self._warm, self.clock) if keep_standby else None,
            probes={"the state_dir": self._probe, "the private Spark": self._see_master},
            all_progressed=lambda: self.got_on,
        )

    async def _warm(self, connection: Connection) -> None:
        await self.cold.wait()
        if self.refusals:
            raise self.refusals.pop()
        self.warmed += 1

    def _probe(self) -> None:
        if self.disk_is_full:
            raise OSError(28, "No space left on device")

    def _see_master(self) -> None:
        if self.master_is_away:
            raise MasterAwayError("nobody there")

    async def begin(self) -> None:
        await self.keeper.connect()
        self.keeper.watch()

    async def on(self) -> object:
        """Return the link of the host that is ready, or will be."""
        return (await self.keeper.ready()).link

    async def lose(self, links: KeptLinks, number: int, reason: str = "kill -9") -> None:
        """Break a link, and wait until the keeper has noticed it."""
        link = links.all[number]
        link.lose(reason)
        await until(lambda: not self.keeper.available or cast("Any", self.keeper.connection.link) is not link)

    async def end(self, *, keep: bool = False) -> None:
        await self.keeper.stop_watching()
        await self.keeper.end(keep=keep)


@pytest.fixture
def links() -> KeptLinks:
    return KeptLinks()


@pytest.fixture
async def site(tmp_path: Path, links: KeptLinks) -> AsyncIterator[Site]:
    site = Site(tmp_path, links)
    await site.begin()
    await until(lambda: site.warmed == 1)
    yield site
    await site.end()
    assert site.keeper.mistake is None
    assert site.cloud.nodes == {}, "no host is left"


async def test_the_host_that_stands_by_takes_over_and_another_stands_by(site: Site, links: KeptLinks) -> None:
    first, second = list(site.cloud.nodes)
    await site.lose(links, 0)
    assert await site.on() is links.all[1]
    await until(lambda: site.warmed == 2)
    assert first not in site.cloud.nodes, "the one before is ended"
    assert next(iter(site.cloud.nodes)) == second
    assert (len(site.cloud.nodes), site.cloud.created) == (2, 3)
    await site.lose(links, 1)
    assert await site.on() is links.all[2]


async def test_a_standby_that_is_on_its_way_is_waited_for(tmp_path: Path, links: KeptLinks) -> None:
    site = Site(tmp_path, links)
    site.cold.clear()
    await site.begin()
    await until(lambda: len(links.all) == 2)
    await site.lose(links, 0)
    site.cold.set()
    assert await site.on() is links.all[1]
    await site.end()
    assert site.cloud.nodes == {}


async def test_a_standby_that_dies_is_replaced(site: Site, links: KeptLinks) -> None:
    links.all[1].lose("kill -9")
    await until(lambda: site.warmed == 2)
    await site.lose(links, 0)
    assert await site.on() is links.all[2]


async def test_without_a_standby_that_starts_the_host_is_started_anew(tmp_path: Path, links: KeptLinks) -> None:
    site = Site(tmp_path, links)
    await site.keeper.connect()
    site.cloud.refusals = [boot_error("home") for _ in range(3)]
    site.keeper.watch()
    await until(lambda: site.warmed == 1)
    assert not site.cloud.refusals, "it was tried again until there was one"
    await site.end()
    assert site.cloud.nodes == {}


async def test_a_host_that_cannot_be_launched_is_tried_again_and_it_is_told_why(
    tmp_path: Path, links: KeptLinks, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, links, keep_standby=False)
    await site.begin()
    site.cloud.refusals = [boot_error("home") for _ in range(4)]
    site.cloud.nodes.clear()  # its process is gone
    await site.lose(links, 0)
    assert await site.on() is links.all[1]
    told = [text for text in caplog.messages if "cannot be launched: home: it did not come up; the next" in text]
    assert len(told) == 4
    assert site.keeper.trouble == ""
    assert site.keeper.failed_launches == 0
    await site.end()


async def test_the_next_gateway_finds_both_and_the_older_one_has_the_queries(
    tmp_path: Path, links: KeptLinks, caplog: pytest.LogCaptureFixture
) -> None:
    before = Site(tmp_path, links)
    await before.begin()
    await until(lambda: before.warmed == 1)
    await before.end(keep=True)
    assert "is lost" not in caplog.text, "a link that is closed in order is no loss: no other host is started for it"
    old = list(before.cloud.nodes)
    after = Site(tmp_path, links, cloud=before.cloud)
    await after.begin()
    await until(lambda: after.warmed == 1)
    assert (list(after.cloud.nodes), after.cloud.created) == (old, 2)
    await after.end()
    assert after.cloud.nodes == {}


async def test_a_gateway_without_standby_ends_the_one_of_an_earlier_gateway(tmp_path: Path, links: KeptLinks) -> None:
    before = Site(tmp_path, links)
    await before.begin()
    await until(lambda: before.warmed == 1)
    await before.end(keep=True)
    first = next(iter(before.cloud.nodes))
    after = Site(tmp_path, links, cloud=before.cloud, keep_standby=False)
    await after.begin()
    assert list(after.cloud.nodes) == [first]
    await after.end()


async def test_hosts_of_other_roles_are_left_alone(tmp_path: Path, links: KeptLinks) -> None:
    site = Site(tmp_path, links, keep_standby=False)
    authority = Authority.open(tmp_path / "trust")
    other = HomeHost(site.cloud, authority, 60.0, site.clock, set(), "trial", dial=KeptLinks())
    connection = await other.connect(TAGS)
    await site.begin()
    assert len(site.cloud.nodes) == 2
    await site.end()
    assert len(site.cloud.nodes) == 1, "the other one is still there"
    await other.end(connection)


async def test_a_gateway_told_to_stop_while_the_standby_starts_leaves_none(tmp_path: Path, links: KeptLinks) -> None:
    site = Site(tmp_path, links)
    site.cold.clear()
    await site.begin()
    await until(lambda: len(links.all) == 2)
    await site.end(keep=True)
    assert len(site.cloud.nodes) == 1, "one that is not ready is of no use to the next gateway"


async def test_losses_between_which_queries_got_on_cost_no_pause_and_others_do(
    tmp_path: Path, links: KeptLinks, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, links, keep_standby=False)
    await site.begin()
    for _ in range(8):
        await site.lose(links, -1)
        await site.on()
    assert "the next launch is in" not in caplog.text
    site.got_on = False
    for _ in range(5):
        await site.lose(links, -1)
        await site.on()
    assert caplog.text.count("the next launch is in 1 s") == 1, "after the fifth loss without progress"
    await site.lose(links, -1)
    await site.on()
    assert caplog.text.count("the next launch is in 2 s") == 1
    assert site.keeper.trouble == ""
    await site.end()


async def test_a_full_disk_is_waited_out_before_the_host_is_started_again(tmp_path: Path, links: KeptLinks) -> None:
    site = Site(tmp_path, links, keep_standby=False)
    await site.begin()
    site.got_on = False
    for losses in range(7):
        site.disk_is_full = True
        links.all[-1].lose("its checkpoint cannot be written")
        await until(lambda: site.keeper.trouble != "")
        assert "No space left on device" in site.keeper.trouble
        assert len(links.all) == losses + 1, "no host is started meanwhile"
        site.disk_is_full = False
        await until(lambda losses=losses: len(links.all) == losses + 2 and site.keeper.trouble == "")  # type: ignore[misc]
    await site.end()


async def test_a_master_that_is_away_is_waited_for_and_costs_no_host(tmp_path: Path, links: KeptLinks) -> None:
    site = Site(tmp_path, links, keep_standby=False)
    await site.begin()
    site.got_on = False
    for number in range(8):  # more often than a host may be lost in a short time
        site.master_is_away = True
        links.all[-1].lose("Spark died")
        await until(lambda: site.keeper.trouble != "")
        assert site.keeper.trouble == "the private Spark: private.spark.master: nobody there"
        assert len(links.all) == number + 1, "no host is tried meanwhile"
        site.master_is_away = False
        await until(lambda number=number: len(links.all) == number + 2 and site.keeper.trouble == "")  # type: ignore[misc]
    await site.end()
