"""The part of a gateway that rents (books, reaper and EC2), in a separate process that a test kills.

Usage: python rented_gateway.py STATE_DIR ENDPOINT. It reserves money for a VM, orders it, and keeps it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from gateway.fleet.books import Books
from gateway.fleet.reaper import Reaper
from infra.clock import Clock, SystemClock
from infra.clouds.providers.account import Account
from infra.clouds.rented import RentedCloud
from infra.link.keys.trust import UserData, new_token
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget, Ledger

TAGS = {"spillway-gateway": "g1"}
TERMS = BillingTerms(period_s=60.0, minimum_s=60.0, usd_per_hour=6.0, usd_per_gb_sent=0.0)
ORPHAN_AFTER_S = 60.0


async def boots(address: str, port: int, host: str) -> bool:
    return False


async def script(told: UserData) -> str:
    return msgspec.json.encode(told).decode()


def rented(endpoint: str, clock: Clock) -> RentedCloud:
    account = Account(
        provider="ec2",
        key="test",
        secret="test",
        region="eu-west-1",
        image="ami-12c6146b",
        sizes=("m5.large",),
        port=7443,
        endpoint=endpoint,
    )
    return RentedCloud(account, script, clock, is_host=boots)


def books_in(state_dir: Path, clock: Clock) -> tuple[Books, Ledger]:
    ledger = Ledger(Budget(usd_per_day=1.0))
    books = Books(
        state_dir / "books.json",
        lambda: ledger.state,
        lambda why: setattr(ledger, "frozen", why),
        TERMS,
        orphan_after_s=ORPHAN_AFTER_S,
        clock=clock,
    )
    ledger.restore(books.restored)
    return books, ledger


async def main(state_dir: Path, endpoint: str) -> None:
    clock = SystemClock()
    books, ledger = books_in(state_dir, clock)
    cloud = rented(endpoint, clock)
    reaper = Reaper(cloud, TAGS, lambda: {"vm-1"}, clock)
    reaper.watch()
    await reaper.first_sweep()
    at_s = clock.wall()
    assert ledger.reserve("vm-1", {"q": TERMS.time_usd(60.0)}, at_s, at_s + 60.0)
    await books.save()
    told = UserData(host="vm-1-0a", ca_pem="none", token=new_token()).to_json()
    await cloud.create("vm-1", reaper.tags, told)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
