"""Gateways that share a quota in a real object store: what is granted to each, and what is left when one ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.config import Config, load
from gateway.config.settings import lone_settings, scheduler_settings
from gateway.fleet.quota.quotakeeper import QuotaKeeper
from infra.statefiles import StateError
from policies.money.ledger import LedgerState, day_of
from policies.quota.requests import Allowance, Needs
from tests.connectors.s3_server import S3Server, faulty
from tests.support.gateway_doubles import ManualClock
from tests.support.waiting import until

CONFIG = """\
gateway:
  state_dir: state
  object_store: {store}
  quota: {{name: town, max_vms: {vms}, usd_per_day: 1}}
cloud:
  provider: process
  max_vms: 2
  boot: 10s
  billing: {{period: 60s, minimum: 60s, usd_per_hour: 6, usd_per_gb_sent: 0}}
  budget: {{usd_per_day: 5}}
queries:
  words:
    source: {{type: file, path: in.jsonl}}
    schema: id STRING, body STRING
    sql: SELECT id FROM events
    sink: {{type: file, path: out}}
    qos: {{latency: 2s}}
"""
BLOCK_USD = 0.1
TODAY = day_of(ManualClock().wall())


class Gateway:
    """A gateway's part of the quota, and what was granted last."""

    def __init__(self, config: Config, name: str) -> None:
        self.granted = Allowance()
        self.clock = ManualClock()
        self.keeper = QuotaKeeper(config, name, self.note, self.clock)

    def note(self, allowance: Allowance) -> None:
        self.granted = allowance

    async def begin(self, *, inherits: bool = False) -> Gateway:
        await self.keeper.begin(inherits=inherits, before=LedgerState(), now=LedgerState())
        return self

    def want(self, vms: int) -> None:
        self.keeper.need(Needs(vms - 1, {TODAY: (vms - 1) * BLOCK_USD}, (TODAY, BLOCK_USD)))


def configured(folder: Path, store: str, vms: int = 2) -> Config:
    (folder / "in.jsonl").touch()
    path = folder / "config.yaml"
    path.write_text(CONFIG.format(store=store, vms=vms))
    return load(path)


@pytest.fixture(params=["s3", "folder"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    if request.param == "folder":
        return configured(tmp_path, "{folder: store}")
    server: S3Server = request.getfixturevalue("s3_server")
    bucket: str = request.getfixturevalue("bucket")
    return configured(tmp_path, f"{{bucket: {bucket}, endpoint: {server.endpoint}}}")


async def test_two_gateways_use_no_more_than_the_quota(config: Config) -> None:
    first, second = await Gateway(config, "a").begin(), await Gateway(config, "b").begin()
    first.want(2)
    await until(lambda: first.granted.vms == 2)
    await until(lambda: dict(first.granted.usd_by_day or ()).get(TODAY) == pytest.approx(2 * BLOCK_USD))
    second.want(1)
    await until(lambda: second.granted.why == "all 2 VMs are in use")
    assert second.granted.vms == 0
    await first.keeper.end()
    second.clock.advance(20)
    second.want(1)
    await until(lambda: second.granted.vms == 1)
    await second.keeper.end()


async def test_many_at_once_get_what_there_is_and_no_more(config: Config) -> None:
    gateways = [await Gateway(config, f"g{at}").begin() for at in range(8)]
    for gateway in gateways:
        gateway.want(1)
    await until(lambda: sum(gateway.granted.vms for gateway in gateways) == 2)
    await until(lambda: sum(bool(gateway.granted.why) for gateway in gateways) == 6)
    assert sum(gateway.granted.vms for gateway in gateways) == 2
    await asyncio.gather(*(gateway.keeper.end() for gateway in gateways))


async def test_a_gateway_that_was_killed_has_its_permit_again(config: Config) -> None:
    killed = await Gateway(config, "a").begin()
    killed.want(2)
    await until(lambda: killed.granted.vms == 2)
    again = await Gateway(config, "a").begin(inherits=True)
    # Before it adopts its VMs, it has their permits, and money for the block of each that runs and the next one.
    assert again.granted.vms == 2
    assert dict(again.granted.usd_by_day or ())[TODAY] == pytest.approx(4 * BLOCK_USD)
    killed.clock.advance(30)  # it still runs, and wants to renew
    await until(lambda: killed.granted.vms == 0)
    for gateway in (again, killed):
        await gateway.keeper.end()


async def test_while_the_store_is_away_nothing_new_is_granted_and_a_lease_ends(
    tmp_path: Path, s3_server: S3Server, bucket: str
) -> None:
    away = False
    with faulty(s3_server, lambda _: "503" if away else "") as proxy:
        gateway = await Gateway(configured(tmp_path, f"{{bucket: {bucket}, endpoint: {proxy.endpoint}}}"), "a").begin()
        gateway.want(1)
        await until(lambda: gateway.granted.vms == 1)
        away = True
        gateway.clock.advance(59)
        gateway.want(2)
        await until(lambda: gateway.granted.why != "", deadline_s=60)
        assert gateway.granted.vms == 1
        gateway.clock.advance(2)
        gateway.want(2)
        await until(lambda: gateway.granted.vms == 0)
        away = False
        gateway.clock.advance(60)
        gateway.want(2)
        await until(lambda: gateway.granted.vms == 2, deadline_s=60)
        assert gateway.granted.why == ""
        await gateway.keeper.end()


async def test_a_folder_that_cannot_be_made_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    gateway = Gateway(configured(tmp_path, "{folder: file/store}"), "a")
    with pytest.raises(StateError, match=r"gateway.object_store: .*file"):
        await gateway.begin()


def test_a_gateway_that_is_simulated_alone_has_the_whole_quota(tmp_path: Path) -> None:
    config = configured(tmp_path, "{folder: store}", vms=1)
    assert scheduler_settings(config).quota
    alone = lone_settings(config)
    assert (alone.quota, alone.max_vms, alone.budget.usd_per_day) == (False, 1, 1.0)
