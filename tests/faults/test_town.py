"""The gateway is killed at any moment and at every named place, its neighbours restart: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from infra.failpoints import NAMES
from tests.connectors.kafka_broker import Broker
from tests.connectors.mosquitto import Mosquitto
from tests.connectors.ports import free_ports
from tests.connectors.s3_reader import read_results
from tests.connectors.s3_server import Fault, FaultProxy, S3Server
from tests.e2e.harness import end_hosts
from tests.faults.figures import Figures, Scale
from tests.faults.readers import topic_rows
from tests.faults.senders import HttpSender, KafkaSender, MqttSender, Sender
from tests.faults.town import TownGateway, account, all_arrived, dead_letters_account, file_rows, query

READY_GOAL_S = 3.0
# So long a place may take to be reached, while events flow.
REACHED_S = 60.0
S3_FAULTS: tuple[Fault, ...] = ("500", "503", "slow down", "late", "answer lost", "refused")
REPLAY = "deadletters.replay."
# Places that are reached when a gateway ends in order (or after hours of growth).
AT_END = {"runlog.rewrite.before", "runlog.rewrite.after"}


class Town:
    """The gateway, its neighbours, and the senders."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder = folder
        self.broker = broker
        self.mosquitto = Mosquitto(folder / "mosquitto").start()
        self.s3 = S3Server(folder)
        self.bucket = self.s3.make_bucket()
        self.s3_fault: Fault = ""
        self.proxy = FaultProxy(self.s3.port, lambda *_: self.s3_fault, late_s=2.0)
        api_port, self._http_port = free_ports(2)
        self.topic_in = asyncio.run(broker.create_topic())
        self.topic_out = asyncio.run(broker.create_topic())
        self.gateway = TownGateway(folder, self._queries(), api_port)
        self.senders: dict[Sender, Callable[[], list[dict[str, Any]]]] = {}

    def _queries(self) -> dict[str, Any]:
        small = {"limit": "64MB", "segment": "64KiB"}
        posted = {"type": "http", "listen": f"127.0.0.1:{self._http_port}", "journal": small}
        streamed = {"type": "kafka", "brokers": self.broker.brokers, "topics": [self.topic_in]}
        sensed = {
            "type": "mqtt",
            "host": "127.0.0.1",
            "port": self.mosquitto.port,
            "topics": ["sensors/#"],
            "qos": 2,
            "journal": small,
        }
        results = {"type": "s3", "bucket": self.bucket, "prefix": "out", "endpoint": self.proxy.endpoint}
        return {
            "posted": query(posted, {"type": "file", "path": str(self.folder / "out")}),
            "streamed": query(streamed, {"type": "kafka", "brokers": self.broker.brokers, "topic": self.topic_out}),
            "sensed": query(sensed, results),
        }

    def send(self) -> None:
        """Start all senders."""
        self.senders = {
            HttpSender(self._http_port): lambda: file_rows(self.folder / "out"),
            KafkaSender(self.broker.brokers, self.topic_in): lambda: topic_rows(self.broker.brokers, self.topic_out),
            MqttSender(self.mosquitto.port, "sensors/one"): lambda: read_results(self.s3.client(), self.bucket, "out"),
        }
        for sender in self.senders:
            sender.start()

    def settle(self) -> None:
        """Stop the senders, wait for what they sent, drain, and compare all results with the ledgers."""
        if not self.gateway.runs:
            self.gateway.start_ready()
        for sender in self.senders:
            sender.stop()
        all_arrived(self.senders)
        self.gateway.drain()
        wrong = [account(sender, rows()) for sender, rows in self.senders.items()]
        posted = next(sender for sender in self.senders if isinstance(sender, HttpSender))
        wrong.append(dead_letters_account(posted, self.gateway.dead_letters("posted")))
        assert not any(wrong), "\n".join(text for text in wrong if text)

    def s3_fails(self, fault: Fault, for_s: float) -> None:
        """Let the object store answer in this way for a while."""
        self.s3_fault = fault
        time.sleep(for_s)
        self.s3_fault = ""

    def mosquitto_restarts(self) -> None:
        """Stop it in order, and start it again."""
        self.mosquitto.stop()
        self.mosquitto.start()

    @property
    def taken(self) -> int:
        """How many events the ledgers hold."""
        return sum(len(sender.taken) for sender in self.senders)

    def close(self) -> None:
        """End all processes."""
        for sender in self.senders:
            sender.give_up()
        if self.gateway.runs:
            self.gateway.kill()
        end_hosts(self.gateway.state_dir)
        self.mosquitto.stop()
        self.proxy.stop()
        self.s3.stop()


@pytest.fixture
def town(tmp_path: Path, broker: Broker) -> Iterator[Town]:
    place = Town(tmp_path, broker)
    yield place
    place.close()


def ready_text(times_s: list[float]) -> str:
    """Print how long it took until the gateway was ready."""
    late = sum(each > READY_GOAL_S for each in times_s)
    return (
        f"ready after {median(times_s):.1f} s (median), {max(times_s):.1f} s (most); later than the goal {late} times"
    )


@pytest.mark.timeout(7200)
def test_the_gateway_killed_at_random_moments(town: Town, scale: Scale, figures: Figures) -> None:
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    town.gateway.start_ready()
    town.send()
    times_s = []
    kills = scale.times(6, 200)
    for _ in range(kills):
        time.sleep(chance.uniform(0, 1.5))
        town.gateway.kill()
        times_s.append(town.gateway.start_ready())
    town.settle()
    figures.add(
        "gateway: kill -9 at random moments",
        times=kills,
        outcome=f"{town.taken:,} events: 0 lost, 0 twice, 0 out of order",
        figure=ready_text(times_s),
        goal=f"0 lost, 0 twice, ready <= {READY_GOAL_S:g} s",
    )


@pytest.mark.timeout(3600)
def test_the_gateway_killed_at_every_named_place(town: Town, scale: Scale, figures: Figures) -> None:
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    town.gateway.start_ready()
    town.send()
    town.gateway.kill()
    times_s, rounds = [], scale.times(1, 5)
    places = [name for name in sorted(NAMES) for _ in range(rounds)]
    # In the short form, the gateway that recovers from a kill is mostly the one that is killed next.
    between = scale.times(6, 1)
    for number, name in enumerate(places):
        first = name in AT_END or name.startswith(REPLAY)
        town.gateway.start(f"{name}=kill@{1 if first else chance.randint(1, 4)}")
        if name in AT_END:
            town.gateway.wait_ready()
            town.gateway.stop()
        if name.startswith(REPLAY):
            town.gateway.ask_for_replay("posted", REACHED_S)
        assert town.gateway.wait_killed(REACHED_S), f"{name} was not reached:\n{town.gateway.tail()}"
        if number % between == 0:
            times_s.append(town.gateway.start_ready())
            town.gateway.kill()
    town.settle()
    figures.add(
        "gateway: kill -9 at every named place",
        times=len(places),
        outcome=f"{town.taken:,} events: 0 lost, 0 twice, 0 out of order",
        figure=ready_text(times_s),
        goal=f"0 lost, 0 twice, ready <= {READY_GOAL_S:g} s",
    )


@pytest.mark.timeout(3600)
def test_neighbours_that_restart(town: Town, scale: Scale, figures: Figures) -> None:
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    town.gateway.start_ready()
    town.send()
    rounds = scale.times(1, 10)
    for _ in range(rounds):
        faults: list[Callable[[], object]] = [
            town.broker.restart,
            town.mosquitto_restarts,
            *(partial(town.s3_fails, fault, 3.0) for fault in S3_FAULTS),
        ]
        for fault in chance.sample(faults, len(faults)):
            fault()
            time.sleep(chance.uniform(0, 1))
    town.settle()
    figures.add(
        "Kafka restart, mosquitto restart, S3 500/503/slow/response lost",
        times=(2 + len(S3_FAULTS)) * rounds,
        outcome=f"{town.taken:,} events: 0 lost, 0 twice, 0 out of order",
        figure="the gateway continued by itself",
        goal="0 lost, 0 twice",
    )
