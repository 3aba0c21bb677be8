from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.hosts.enrol import HomeHost, prepare_warm
from infra.clouds.base import CloudError, Node
from infra.link.channel import LinkLost
from infra.link.client import Address
from infra.link.keys.trust import Authority, TrustError, UserData
from infra.messages import Shutdown
from tests.leaping_clock import LeapingClock
from tests.support.fleet_doubles import Dialler, MemoryCloud
from tests.support.waiting import until

TAGS = {"master": "local[1]", "cpus": ""}


class Tokens(Dialler):
    """Also records which hosts were dialled with a token; dialling a host in ``strange`` fails."""

    def __init__(self) -> None:
        super().__init__()
        self.dialled: list[tuple[str, bool]] = []
        self.strange: dict[str, Exception] = {}

    async def __call__(
        self,
        name: str,
        host: str,
        address: Address,
        authority: Authority,
        token: bytes | None,
        *rest: Any,
        **named: Any,
    ) -> Any:
        self.dialled.append((host, token is not None))
        if host in self.strange:
            raise self.strange[host]
        return await super().__call__(name, host, address, authority, token, *rest, **named)


@pytest.fixture
def dialler() -> Tokens:
    return Tokens()


@pytest.fixture
def cloud() -> MemoryCloud:
    return MemoryCloud()


@pytest.fixture
def home(tmp_path: Path, cloud: MemoryCloud, dialler: Tokens) -> Callable[[], HomeHost]:
    """A gateway's view of the same machines, each time that of another gateway."""
    authority = Authority.open(tmp_path / "trust")
    return lambda: HomeHost(cloud, authority, 60.0, LeapingClock(), set(), dial=dialler)


async def test_the_first_gateway_starts_a_host_and_the_next_one_finds_it(
    home: Callable[[], HomeHost], cloud: MemoryCloud, dialler: Tokens
) -> None:
    first = await home().connect(TAGS)
    (node,) = cloud.nodes.values()
    assert dict(node.tags) == {"spillway": "home", **TAGS}
    second_home = home()
    second = await second_home.connect(TAGS)
    assert (cloud.created, list(cloud.nodes)) == (1, [node.id])
    assert dialler.dialled == [(node.host, True), (node.host, False)]
    await first.close("done")
    link = dialler.links["home"]
    await second_home.end(second)
    assert [message for message, _ in link.sent] == [Shutdown()]
    assert cloud.nodes == {}


async def test_a_host_that_was_started_otherwise_is_replaced(
    home: Callable[[], HomeHost], cloud: MemoryCloud, dialler: Tokens
) -> None:
    await (await home().connect(TAGS)).close("done")
    await (await home().connect({**TAGS, "master": "spark://other:7077"})).close("done")
    assert cloud.created == 2
    assert [node.tags["master"] for node in cloud.nodes.values()] == ["spark://other:7077"]


@pytest.mark.parametrize("refusal", [LinkLost("no route"), TrustError("not ours")])
async def test_a_host_that_cannot_be_dialled_is_replaced(
    home: Callable[[], HomeHost], cloud: MemoryCloud, dialler: Tokens, refusal: Exception
) -> None:
    await (await home().connect(TAGS)).close("done")
    (old,) = cloud.nodes.values()
    dialler.strange[old.host] = refusal
    await (await home().connect(TAGS)).close("done")
    (new,) = cloud.nodes.values()
    assert new.id != old.id


async def test_a_new_host_that_does_not_prove_itself_is_ended(
    home: Callable[[], HomeHost], cloud: MemoryCloud, dialler: Tokens
) -> None:
    dialler.refusal = TrustError("it holds another token")
    started = home()
    with pytest.raises(CloudError, match="did not prove its identity: it holds another token"):
        await started.connect(TAGS)
    await started.end(None)
    assert cloud.nodes == {}


async def test_a_gateway_told_to_stop_while_its_host_starts_leaves_none(
    home: Callable[[], HomeHost], cloud: MemoryCloud, dialler: Tokens
) -> None:
    cloud.boots.clear()
    started = home()
    connecting = asyncio.create_task(started.connect(TAGS))
    await until(lambda: cloud.nodes)
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    await started.end(None)
    assert cloud.nodes == {}


class Pool(MemoryCloud):
    """Keeps one warm host."""

    async def prepare(self, user_data: Callable[[str], str]) -> list[Node]:
        if not self.nodes:
            text = user_data(f"warm-{self.created}")
            assert UserData.from_json(text).token
            await self.create("warm", {}, text)
        return list(self.nodes.values())


async def test_warm_hosts_are_enrolled_once(tmp_path: Path, dialler: Tokens) -> None:
    pool, authority = Pool(), Authority.open(tmp_path)
    for _ in range(2):
        await prepare_warm(cast("Any", pool), authority, LeapingClock(), dialler)
    assert dialler.dialled == [("warm-0", True), ("warm-0", False)]
    assert dialler.links["warm"].closed_with == "warm"


async def test_a_warm_host_that_a_killed_gateway_did_not_enrol_is_replaced(tmp_path: Path, dialler: Tokens) -> None:
    pool, authority = Pool(), Authority.open(tmp_path)
    await prepare_warm(cast("Any", pool), authority, LeapingClock(), dialler)
    dialler.strange["warm-0"] = TrustError("not ours")
    dialler.dialled.clear()
    await prepare_warm(cast("Any", pool), authority, LeapingClock(), dialler)
    assert dialler.dialled == [("warm-0", False), ("warm-1", True)]
    assert [node.host for node in pool.nodes.values()] == ["warm-1"]


async def test_a_new_warm_host_that_is_not_ours_stops_the_start(tmp_path: Path, dialler: Tokens) -> None:
    dialler.strange["warm-0"] = TrustError("not ours")
    with pytest.raises(TrustError):
        await prepare_warm(cast("Any", Pool()), Authority.open(tmp_path), LeapingClock(), dialler)
