"""Two gateways without a shared disk: one is killed or hangs, the other continues; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.connectors.kafka_broker import Broker
from tests.connectors.ports import free_ports
from tests.connectors.s3_reader import read_results
from tests.connectors.s3_server import S3Server
from tests.e2e.harness import end_hosts, until
from tests.faults.figures import Figures, Scale
from tests.faults.readers import topic_rows
from tests.faults.senders import KafkaSender
from tests.faults.town import TownGateway, account, all_arrived, query

LEASE_S = 6.0
TAKEN_OVER_GOAL_S = 10.0
FLEET = "two-sites"


class TwoSites:
    """Two gateways, each with a state_dir of its own, one fleet; a topic goes to a topic and to a bucket."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.brokers = broker.brokers
        self.s3 = S3Server(folder)
        self.bucket = self.s3.make_bucket()
        self.store = folder / "store"
        self.topic_in = asyncio.run(broker.create_topic())
        self.topic_out = asyncio.run(broker.create_topic())
        fleet = {"fleet": FLEET, "object_store": {"folder": str(self.store)}, "lease": f"{LEASE_S:g}s"}
        self.sites = []
        for name, port in zip(("north", "south"), free_ports(2), strict=True):
            (folder / name).mkdir()
            self.sites.append(TownGateway(folder / name, self._queries(), port, gateway=fleet))
        self.sender = KafkaSender(self.brokers, self.topic_in)
        self.readers: list[Callable[[], list[dict[str, Any]]]] = [
            lambda: topic_rows(self.brokers, self.topic_out),
            lambda: read_results(self.s3.client(), self.bucket, "out"),
        ]

    def _queries(self) -> dict[str, Any]:
        events = {"type": "kafka", "brokers": self.brokers, "topics": [self.topic_in]}
        bucket = {"type": "s3", "bucket": self.bucket, "prefix": "out", "endpoint": self.s3.endpoint}
        return {
            "to-kafka": query(events, {"type": "kafka", "brokers": self.brokers, "topic": self.topic_out}),
            "to-s3": query(events, bucket),
        }

    def lease(self) -> tuple[int, float]:
        """Return the epoch of the owner, and when its lease ends if it is silent from now on (s since 1970)."""
        latest = max(path for path in (self.store / "fleets" / FLEET).iterdir() if path.name.isdigit())
        return int(json.loads(latest.read_bytes())["epoch"]), latest.stat().st_mtime + LEASE_S

    def counts(self) -> list[int]:
        """Return how many rows each reader finds."""
        return [len(rows()) for rows in self.readers]

    def flows(self) -> None:
        """Wait until both sinks get rows."""
        until(partial(self.has_more_than, self.counts()), "rows in both sinks")

    def has_more_than(self, before: list[int]) -> bool:
        """Whether each reader finds more rows than ``before``."""
        return all(now > old for now, old in zip(self.counts(), before, strict=True))

    def close(self) -> None:
        """End all of it."""
        self.sender.give_up()
        for site in self.sites:
            if site.runs:
                site.kill()
            end_hosts(site.state_dir)
        self.s3.stop()


@pytest.fixture
def two_sites(tmp_path: Path, broker: Broker) -> Iterator[TwoSites]:
    sites = TwoSites(tmp_path, broker)
    yield sites
    sites.close()


@pytest.mark.timeout(7200)
def test_the_owner_killed_or_frozen(two_sites: TwoSites, scale: Scale, figures: Figures) -> None:
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    owner, other = two_sites.sites
    owner.start_ready()
    two_sites.sender.start()
    times_s, kills, freezes = list[float](), scale.times(2, 50), 0
    for number in range(kills):
        other.start()
        until(other.stands_by, "the other gateway stands by")
        two_sites.flows()
        time.sleep(chance.uniform(0, 1.5))
        frozen = number % 2 == 1
        freezes += frozen
        (owner.freeze if frozen else owner.kill)()
        epoch, ends_wall_s = two_sites.lease()
        before = two_sites.counts()
        until(other.ready, "the other gateway has taken over")
        until(partial(two_sites.has_more_than, before), "the new owner writes")
        times_s.append(time.time() - ends_wall_s)
        assert two_sites.lease()[0] == epoch + 1
        if frozen:
            assert owner.thaw() == 1
            assert "was taken over by" in owner.tail()
        owner, other = other, owner
    two_sites.sender.stop()
    for rows in two_sites.readers:
        all_arrived({two_sites.sender: rows})
    owner.drain()
    wrong = [text for rows in two_sites.readers if (text := account(two_sites.sender, rows()))]
    assert not wrong, "\n".join(wrong)
    figures.add(
        "owner of a fleet without a shared disk: kill -9, or SIGSTOP until the other has taken over",
        times=kills,
        outcome=f"{len(two_sites.sender.taken):,} events to Kafka and S3: 0 lost, 0 twice, 0 out of order",
        figure=(
            f"first results {median(times_s):.1f} s (median), {max(times_s):.1f} s (most) after the lease ended; "
            f"{freezes} were suspended, and wrote nothing afterwards"
        ),
        goal=f"0 lost, 0 twice, taken over <= {TAKEN_OVER_GOAL_S:g} s after the lease ended",
    )
