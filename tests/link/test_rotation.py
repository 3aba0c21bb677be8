"""New certificates under load: nothing is lost, and old ones are refused afterwards, whenever the gateway dies."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.hosts.enrol import InService, NotSettledError
from gateway.hosts.rotation import Rotation, RotationRefusedError
from infra.clock import SystemClock
from infra.link.client import HostLink, LinkLost, renew
from infra.link.keys.certificates import Credential
from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import Authority, TrustError, UserData, new_token
from infra.link.server import HostServer
from tests.leaping_clock import LeapingClock
from tests.link.link_site import HOST, RUNTIME, Load, Site, ca_of, new_site, within
from tests.support.waiting import until

RUNS = 10


class Keeper:
    """Knows some hosts; ``unsettled`` are its answers before it has all of them."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = list(sites)
        self.unsettled = 0

    def in_service(self) -> list[InService]:
        if self.unsettled:
            self.unsettled -= 1
            raise NotSettledError("vm-2 is being started")
        return [InService(f"vm-{n}", HOST, site.address) for n, site in enumerate(self.sites)]


def all_went_on(loads: Sequence[Load], before: Sequence[int]) -> bool:
    return all(len(load.answered) > count for load, count in zip(loads, before, strict=True))


def rotation(authority: Authority, sites: Sequence[Site]) -> Rotation:
    return Rotation(authority, cast("Any", None), [Keeper(sites)], SystemClock())


def as_it_is(authority: Authority, folder: Path) -> Authority:
    """Keep the gateway's present keys, as a thief would have them."""
    shutil.copytree(authority.folder, folder)
    return Authority.open(folder)


async def refused(site: Site, authority: Authority) -> None:
    with pytest.raises((TrustError, LinkLost)):
        await within(HostLink.connect(site.address, authority, HOST, "a thief's", clock=SystemClock()))


@pytest.fixture
async def two(authority: Authority, tmp_path: Path) -> AsyncIterator[list[Site]]:
    """Two hosts that store what they receive."""
    async with AsyncExitStack() as stack:
        opened = [new_site(authority, enrolled=True, directory=tmp_path / f"host-{n}") for n in range(2)]
        yield [await stack.enter_async_context(site) for site in opened]


async def test_rotation_under_load_loses_nothing_and_the_old_certificates_are_refused(
    authority: Authority, two: list[Site], tmp_path: Path
) -> None:
    stolen = as_it_is(authority, tmp_path / "stolen")
    stolen_host = tmp_path / "stolen host"
    shutil.copytree(tmp_path / "host-0", stolen_host)
    fleet = authority.fleet
    loads = [Load(site) for site in two]
    links = [await site.link() for site in two]
    stop = asyncio.Event()

    async def keep_busy(load: Load, link: HostLink) -> int:
        upto = 0
        while not stop.is_set() or upto < 10 * RUNS:
            upto += 10
            await load.converse(link, upto)
        return upto

    busy = [asyncio.create_task(keep_busy(*each)) for each in zip(loads, links, strict=True)]
    shown = []
    for _ in range(3):
        before = [len(load.answered) for load in loads]
        assert await rotation(authority, two).rotate() == {"renewed": [HOST, HOST], "later": []}
        shown.append(tuple(site.server.identity.certificate_der for site in two))
        # It is under load: both go on answering after it, too.
        await until(partial(all_went_on, loads, before))
    stop.set()
    upto = [await task for task in busy]
    assert [load.answered for load in loads] == [list(range(0, n, 10)) for n in upto], "each once, none lost"
    assert all(link.lost is None for link in links), "no link ended for it"
    assert len(set(shown)) == 3
    assert authority.fleet == fleet, "its machines are found by the same tag"

    for site in two:
        await refused(site, stolen)
    told = UserData(host=HOST, ca_pem=stolen.ca_pem, token=new_token())
    impostor = HostServer(HostIdentity.open(told, stolen_host), told, RUNTIME, clock=SystemClock())
    address = await impostor.start()
    with pytest.raises(TrustError, match="no trusted connection"):
        await within(HostLink.connect(address, authority, HOST, "s9", clock=SystemClock()))
    await impostor.close("test over")

    newer = await two[0].link("s2")
    await loads[0].converse(newer, upto[0] + 100)
    for load in loads:
        await load.end()


def begun(authority: Authority) -> None:
    authority.following()


def half_way(authority: Authority) -> None:
    following = authority.following()
    folder = authority.folder
    (folder / "next-ca.pem").replace(folder / "ca.pem")
    assert following.fleet == authority.fleet


def given_way(authority: Authority) -> None:
    authority.give_way(authority.following())


@pytest.mark.parametrize("killed", [begun, half_way, given_way])
async def test_a_gateway_killed_in_a_rotation_finds_its_hosts_again_and_finishes(
    authority: Authority, two: list[Site], tmp_path: Path, killed: Callable[[Authority], None]
) -> None:
    stolen, folder = as_it_is(authority, tmp_path / "stolen"), authority.folder
    for site in two if killed is not begun else two[:1]:
        await within(renew(site.address, authority, authority.following(), HOST, 10.0))
    killed(authority)
    again = Authority.open(folder)
    assert again.fleet == stolen.fleet
    for site in two:
        site.authority = again
        await site.link("after the restart")
    assert (await rotation(again, two).rotate())["later"] == []
    for site in two:
        await refused(site, stolen)
        await site.link("after the rotation")
    assert sorted(path.name for path in folder.iterdir()) == ["ca.pem", "gateway.pem"]


async def test_a_host_that_was_renewed_knows_it_after_its_own_restart(
    authority: Authority, two: list[Site], tmp_path: Path
) -> None:
    told = UserData(host=HOST, ca_pem=authority.ca_pem, token=new_token())
    await rotation(authority, two).rotate()
    again = HostIdentity.open(told, tmp_path / "host-0")
    assert again.enrolled
    assert authority.has_issued(again.certificate_der, HOST)
    others = UserData(host=HOST, ca_pem=Authority.open(tmp_path / "other").ca_pem, token=new_token())
    assert not HostIdentity.open(others, tmp_path / "host-0").enrolled


async def test_when_a_host_cannot_be_reached_nothing_changes_and_it_can_be_done_later(
    authority: Authority, two: list[Site], tmp_path: Path
) -> None:
    old = as_it_is(authority, tmp_path / "old")
    away = Site(authority, two[1].server, two[1].user_data, ("127.0.0.1", 9))
    with pytest.raises(RotationRefusedError, match="vm-1 did not take new certificates: cannot reach"):
        await rotation(authority, [two[0], away]).rotate()
    for site in two:
        await site.link("with the present certificate")
    await rotation(authority, two).rotate()
    await refused(two[0], old)


async def test_a_host_that_is_being_started_is_waited_for_a_while(authority: Authority, two: list[Site]) -> None:
    keeper = Keeper(two)
    keeper.unsettled = 3
    patient = Rotation(authority, cast("Any", None), [keeper], LeapingClock())
    assert len((await patient.rotate())["renewed"]) == 2
    keeper.unsettled = 10_000
    with pytest.raises(RotationRefusedError, match="vm-2 is being started: try again once it is"):
        await patient.rotate()


async def test_a_host_that_comes_meanwhile_is_told_too(authority: Authority, two: list[Site]) -> None:
    keeper = Keeper(two[:1])
    asked = 0
    before = keeper.in_service

    def one_more() -> list[InService]:
        nonlocal asked
        asked += 1
        if asked == 2:
            keeper.sites = two
        return before()

    keeper.in_service = one_more  # type: ignore[method-assign]
    done = await Rotation(authority, cast("Any", None), [keeper], SystemClock()).rotate()
    assert len(done["renewed"]) == 2
    await two[1].link("after it")


async def test_a_host_that_nobody_has_signed_yet_is_not_renewed(authority: Authority, new_host: Site) -> None:
    # It cannot even be asked: what it shows nobody has signed.
    with pytest.raises(TrustError, match="no trusted connection"):
        await within(renew(new_host.address, authority, authority, HOST, 10.0))


async def test_a_stranger_renews_nothing(authority: Authority, site: Site, tmp_path: Path) -> None:
    shown = site.server.identity.certificate_der
    Authority.open(tmp_path / "stranger")
    shown_by_stranger = tmp_path / "stranger" / "gateway.pem"
    # It trusts the host, so that it is the host who refuses.
    stranger = Authority(
        ca_of(authority), Credential.from_pem(shown_by_stranger.read_bytes(), "gateway.pem"), shown_by_stranger
    )
    with pytest.raises((TrustError, LinkLost)):
        await within(renew(site.address, stranger, stranger, HOST, 10.0))
    assert site.server.identity.certificate_der == shown
