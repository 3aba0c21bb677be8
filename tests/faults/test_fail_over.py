"""Two gateways without a shared disk: one is killed or hangs, the other continues; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from tests.connectors.kafka_broker import Broker
from tests.connectors.ports import free_ports
from tests.connectors.s3_server import S3Server
from tests.e2e.harness import end_hosts, until
from tests.faults.figures import Figures, Scale
from tests.faults.readers import BucketReader, TopicReader
from tests.faults.senders import PAUSE_S, KafkaSender
from tests.faults.town import TownGateway, account, all_arrived, query

LEASE_S = 6.0
TAKEN_OVER_GOAL_S = 10.0
FLEET = "two-sites"
# Decision 98: each owner's epochs are higher than those of all before it.
EPOCHS_PER_OWNER = 10**9


class TwoSites:
    """Two gateways, each with a state_dir of its own, one fleet; a topic goes to a topic and to a bucket."""

    def __init__(self, folder: Path, broker: Broker, pause_s: float) -> None:
        self.brokers = broker.brokers
        self.s3 = S3Server(folder)
        self.store = folder / "store"
        bucket = self.s3.make_bucket()
        topic_in, topic_out = (asyncio.run(broker.create_topic()) for _ in range(2))
        events = {"type": "kafka", "brokers": self.brokers, "topics": [topic_in]}
        objects = {"type": "s3", "bucket": bucket, "prefix": "out", "endpoint": self.s3.endpoint}
        queries = {
            "to-kafka": query(events, {"type": "kafka", "brokers": self.brokers, "topic": topic_out}),
            "to-s3": query(events, objects),
        }
        fleet = {"fleet": FLEET, "object_store": {"folder": str(self.store)}, "lease": f"{LEASE_S:g}s"}
        self.sites = []
        for name, port in zip(("north", "south"), free_ports(2), strict=True):
            (folder / name).mkdir()
            self.sites.append(TownGateway(folder / name, queries, port, gateway=fleet))
        self.sender = KafkaSender(self.brokers, topic_in, pause_s)
        self.topic = TopicReader(self.brokers, topic_out)
        self.bucket = BucketReader(self.s3.client(), bucket, "out")

    def lease(self) -> tuple[int, float]:
        """Return the epoch of the owner, and when its lease ends if it is silent from now on (s since 1970)."""
        latest = max(path for path in (self.store / "fleets" / FLEET).iterdir() if path.name.isdigit())
        return int(json.loads(latest.read_bytes())["epoch"]), latest.stat().st_mtime + LEASE_S

    def progress(self) -> list[object]:
        """Return for each sink something that changes when it gets results."""
        return [self.topic.progress(), self.bucket.progress()]

    def moved_on(self, before: list[object]) -> bool:
        """Whether each sink got results since ``before``."""
        return all(now != old for now, old in zip(self.progress(), before, strict=True))

    def thaw(self, old: TownGateway, epoch: int) -> None:
        """Let a suspended owner continue; it must end, and nothing that it writes may count.

        Args:
            old: the gateway that was suspended.
            epoch: of the lease of the present owner.
        """
        begin, parts = self.topic.end(), set(self.bucket.parts())
        assert old.thaw() == 1
        assert "stops writing" in old.tail()
        end = self.topic.end()
        committed = self.topic.offsets(begin, end, "read_committed")
        assert self.topic.offsets(begin, end, "read_uncommitted") == committed
        writers = {int(name.partition(".")[0].split("-")[-2]) for name in set(self.bucket.parts()) - parts}
        assert {number // EPOCHS_PER_OWNER for number in writers} <= {epoch}

    def close(self) -> None:
        """End all of it."""
        self.sender.give_up()
        for site in self.sites:
            if site.runs:
                site.kill()
            end_hosts(site.state_dir)
        self.topic.close()
        self.s3.stop()


@pytest.fixture
def two_sites(tmp_path: Path, broker: Broker, scale: Scale) -> Iterator[TwoSites]:
    # Each micro-batch takes as much CPU as a hundred events.
    sites = TwoSites(tmp_path, broker, PAUSE_S if scale.full else 5 * PAUSE_S)
    yield sites
    sites.close()


@pytest.mark.timeout(7200)
def test_the_owner_killed_or_frozen(two_sites: TwoSites, scale: Scale, figures: Figures) -> None:
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    owner, other = two_sites.sites
    owner.start_ready()
    times_s, faults, freezes = list[float](), scale.times(1, 50), 0
    for number in range(faults):
        other.start()
        until(other.stands_by, "the other gateway stands by")
        if number == 0:
            two_sites.sender.start()
        until(partial(two_sites.moved_on, two_sites.progress()), "results in both sinks")
        time.sleep(chance.uniform(0, 1.5))
        frozen = number % 2 == 0
        freezes += frozen
        (owner.freeze if frozen else owner.kill)()
        epoch, ends_wall_s = two_sites.lease()
        before = two_sites.progress()
        until(other.ready, "the other gateway has taken over")
        until(partial(two_sites.moved_on, before), "the new owner writes")
        times_s.append(time.time() - ends_wall_s)
        print(f"{'suspended' if frozen else 'killed'}: first results {times_s[-1]:.1f} s after the lease ended")
        assert two_sites.lease()[0] == epoch + 1
        if frozen:
            two_sites.thaw(owner, epoch + 1)
        owner, other = other, owner
    two_sites.sender.stop()
    readers: list[TopicReader | BucketReader] = [two_sites.topic, two_sites.bucket]
    for reader in readers:
        all_arrived({two_sites.sender: reader.rows})
    owner.drain()
    wrong = [text for reader in readers if (text := account(two_sites.sender, reader.rows()))]
    assert not wrong, "\n".join(wrong)
    figures.add(
        "owner of a fleet without a shared disk: kill -9, or SIGSTOP until the other has taken over",
        times=faults,
        outcome=f"{len(two_sites.sender.taken):,} events to Kafka and S3: 0 lost, 0 twice, 0 out of order",
        figure=(
            f"first results {median(times_s):.1f} s (median), {max(times_s):.1f} s (most) after the lease ended; "
            f"{freezes} were suspended, and wrote nothing afterwards"
        ),
        goal=f"0 lost, 0 twice, taken over <= {TAKEN_OVER_GOAL_S:g} s after the lease ended",
    )
