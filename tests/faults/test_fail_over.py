"""Two gateways without a shared disk: one is killed or hangs, the other continues; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.connectors.kafka_broker import Broker
from tests.connectors.ports import free_ports
from tests.connectors.s3_server import S3Server
from tests.e2e.harness import end_hosts, until
from tests.faults.figures import Figures, Measure, Scale
from tests.faults.readers import BucketReader, TopicReader
from tests.faults.senders import BUNCH, BucketSender, KafkaSender, Sender
from tests.faults.town import TownGateway, account, all_arrived, in_order_of_objects, query, several

LEASE_S = 6.0
TAKEN_OVER_GOAL_S = 10.0
FLEET = "two-sites"
# Decision 98: each owner's epochs are higher than those of all before it.
EPOCHS_PER_OWNER = 10**9
FOLLOWING = "from-objects"


def latest_version(folder: Path) -> Path:
    """Return the newest version of a record in a store that is a folder."""
    return max(path for path in folder.iterdir() if path.name.isdigit())


def object_of(row: dict[str, Any]) -> int:
    """Return the number of the object that held a row's event."""
    return int(row["n"]) // BUNCH


def torn(rows: list[dict[str, Any]]) -> str:
    """Return which objects' events do not follow each other; the order of the objects is free. Empty if none."""
    begun = Counter(number for number, _ in groupby(map(object_of, rows)))
    apart = [number for number, times in begun.items() if times > 1]
    return f"{len(apart)} objects in pieces {apart[:5]}" if apart else ""


class TwoGateways:
    """Two gateways, each with a state_dir of its own, one fleet.

    A topic goes to a topic and to a bucket. Objects that appear in a bucket go to another topic. A fourth query reads
    the topic and the objects, and its results go to a topic of their own.
    """

    def __init__(self, folder: Path, broker: Broker) -> None:
        brokers = broker.brokers
        self.s3 = S3Server(folder)
        self.store = folder / "store"
        bucket = self.s3.make_bucket()
        topic_in, topic_out, topic_of_objects, topic_of_both = (asyncio.run(broker.create_topic()) for _ in range(4))
        events = {"type": "kafka", "brokers": brokers, "topics": [topic_in]}
        objects = {"type": "s3", "bucket": bucket, "endpoint": self.s3.endpoint}
        appearing = {**objects, "prefix": "in", "follow": True}
        queries = {
            "to-kafka": query(events, {"type": "kafka", "brokers": brokers, "topic": topic_out}),
            "to-s3": query(events, {**objects, "prefix": "out"}),
            FOLLOWING: query(appearing, {"type": "kafka", "brokers": brokers, "topic": topic_of_objects}),
            "both": several(
                {"streamed": events, "stored": appearing}, {"type": "kafka", "brokers": brokers, "topic": topic_of_both}
            ),
        }
        fleet = {"fleet": FLEET, "object_store": {"folder": str(self.store)}, "lease": f"{LEASE_S:g}s"}
        self.sites = []
        for name, port in zip(("north", "south"), free_ports(2), strict=True):
            (folder / name).mkdir()
            self.sites.append(TownGateway(folder / name, queries, port, gateway=fleet))
        self.events = KafkaSender(brokers, topic_in)
        self.objects = BucketSender(self.s3.client(), bucket, "in")
        self.senders: tuple[Sender, ...] = (self.events, self.objects)
        self.topic = TopicReader(brokers, topic_out)
        self.bucket = BucketReader(self.s3.client(), bucket, "out")
        self.followed = TopicReader(brokers, topic_of_objects)
        self.both = TopicReader(brokers, topic_of_both)
        self.readers = (self.topic, self.bucket, self.followed, self.both)

    def lease(self) -> tuple[int, float]:
        """Return the epoch of the owner, and when its lease ends if it is silent from now on (s since 1970)."""
        latest = latest_version(self.store / "fleets" / FLEET)
        return int(json.loads(latest.read_bytes())["epoch"]), latest.stat().st_mtime + LEASE_S

    def owner_of_the_list(self) -> int:
        """Return the epoch of the lease under which the list of the objects was last written."""
        (versions,) = (self.store / "files" / FLEET / FOLLOWING).iterdir()
        return int(json.loads(latest_version(versions).read_bytes())["epoch"]) // EPOCHS_PER_OWNER

    def progress(self) -> list[object]:
        """Return for each sink something that changes when it gets results."""
        return [reader.progress() for reader in self.readers]

    def moved_on(self, before: list[object]) -> bool:
        """Whether each sink got results since ``before``."""
        for sender in self.senders:
            sender.check()
        return all(now != old for now, old in zip(self.progress(), before, strict=True))

    def thaw(self, old: TownGateway, epoch: int) -> None:
        """Let a suspended owner continue; it must end, and nothing that it writes may count.

        Args:
            old: the gateway that was suspended.
            epoch: of the lease of the present owner.
        """
        topics = (self.topic, self.followed, self.both)
        begins, parts = [topic.end() for topic in topics], set(self.bucket.parts())
        assert old.thaw() == 1
        assert "stops writing" in old.tail()
        for topic, begin in zip(topics, begins, strict=True):
            end = topic.end()
            committed = topic.offsets(begin, end, "read_committed")
            assert topic.offsets(begin, end, "read_uncommitted") == committed
        writers = {int(name.partition(".")[0].split("-")[-2]) for name in set(self.bucket.parts()) - parts}
        assert {number // EPOCHS_PER_OWNER for number in writers} <= {epoch}
        assert self.owner_of_the_list() == epoch

    def processed_objects(self) -> list[str]:
        """Return the keys of the objects whose results are all in both topics."""
        found = {row["n"] for row in self.followed.rows()} & {row["n"] for row in self.of_both("stored")}
        return self.objects.done(lambda n: n in found or n % 10 == 3)

    def all_arrived(self) -> None:
        """Wait until the sinks hold all that was sent."""
        for reader in (self.topic, self.bucket):
            all_arrived({self.events: reader.rows})
        all_arrived({self.events: partial(self.of_both, "streamed")})
        for rows in (self.followed.rows, partial(self.of_both, "stored")):
            all_arrived({self.objects: rows})

    def wrong(self) -> list[str]:
        """Return how the sinks differ from what was sent."""
        streamed, stored = self.of_both("streamed"), self.of_both("stored")
        found = [account(self.events, rows) for rows in (self.topic.rows(), self.bucket.rows(), streamed)]
        for rows in (self.followed.rows(), stored):
            found += [account(self.objects, in_order_of_objects(rows)), torn(rows)]
        return [text for text in found if text]

    def of_both(self, stream: str) -> list[dict[str, Any]]:
        """Return the results of one stream of the query with two sources."""
        found = [dict(row) for row in self.both.rows()]
        return [row for row in found if row.pop("stream") == stream]

    def close(self) -> None:
        """End all of it."""
        with ExitStack() as last_first:
            last_first.callback(self.s3.stop)
            for topic in (self.topic, self.followed, self.both):
                last_first.callback(topic.close)
            for site in self.sites:
                last_first.callback(end_hosts, site.state_dir)
                if site.runs:
                    last_first.callback(site.kill)
            for sender in self.senders:
                last_first.callback(sender.give_up)


@pytest.fixture
def two_gateways(tmp_path: Path, broker: Broker) -> Iterator[TwoGateways]:
    sites = TwoGateways(tmp_path, broker)
    yield sites
    sites.close()


@pytest.mark.timeout(7200)
def test_the_owner_killed_or_frozen(two_gateways: TwoGateways, scale: Scale, figures: Figures) -> None:
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    owner, other = two_gateways.sites
    owner.start_ready()
    times_s, faults, freezes = list[float](), scale.times(1, 50), 0
    for number in range(faults):
        other.start()
        until(other.stands_by, "the other gateway stands by")
        if number == 0:
            for sender in two_gateways.senders:
                sender.start()
        until(partial(two_gateways.moved_on, two_gateways.progress()), "results in all sinks")
        until(lambda: len(two_gateways.processed_objects()) > 1, "all results of two objects")
        time.sleep(chance.uniform(0, 1.5))
        frozen = number % 2 == 0
        freezes += frozen
        (owner.freeze if frozen else owner.kill)()
        epoch, ends_wall_s = two_gateways.lease()
        # What is processed may be removed, or stay: the next owner must not need it, or read it again.
        two_gateways.objects.remove(two_gateways.processed_objects()[::2])
        before = two_gateways.progress()
        until(other.ready, "the other gateway has taken over")
        until(partial(two_gateways.moved_on, before), "the new owner writes")
        times_s.append(time.time() - ends_wall_s)
        print(f"{'suspended' if frozen else 'killed'}: first results {times_s[-1]:.1f} s after the lease ended")
        assert two_gateways.lease()[0] == epoch + 1
        if frozen:
            two_gateways.thaw(owner, epoch + 1)
        owner, other = other, owner
    for sender in two_gateways.senders:
        sender.stop()
    two_gateways.all_arrived()
    owner.drain()
    wrong = two_gateways.wrong()
    assert not wrong, "\n".join(wrong)
    figures.add(
        "owner of a fleet without a shared disk: kill -9, or SIGSTOP until the other has taken over",
        Measure("first results after the lease ended", max(times_s), TAKEN_OVER_GOAL_S, "s"),
        times=faults,
        outcome=f"{len(two_gateways.events.taken):,} events from Kafka to Kafka and S3, and "
        f"{len(two_gateways.objects.taken):,} from followed objects to Kafka, and both by a query with two sources: "
        "0 lost, 0 twice, 0 out of order; "
        f"taken over after {median(times_s):.1f} s (median); {freezes} were suspended, and wrote nothing afterwards",
    )
