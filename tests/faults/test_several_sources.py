"""A gateway whose query reads three sources is killed while events come: HTTP, MQTT, and objects that appear in S3."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.mosquitto import Mosquitto
from tests.connectors.ports import free_ports
from tests.connectors.s3_server import S3Server
from tests.e2e.harness import end_hosts, until
from tests.faults.figures import Figures, Scale
from tests.faults.senders import BucketSender, HttpSender, MqttSender, Sender
from tests.faults.town import (
    TownGateway,
    account,
    all_arrived,
    dead_letters_account,
    file_rows,
    in_order_of_objects,
    several,
)


class ThreeSources:
    """A gateway with one query that puts three streams together, and the sender of each stream."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mosquitto = Mosquitto(folder / "mosquitto").start()
        self.s3 = S3Server(folder)
        bucket = self.s3.make_bucket()
        api_port, http_port = free_ports(2)
        small = {"limit": "64MB", "segment": "64KiB"}
        objects = {"type": "s3", "bucket": bucket, "endpoint": self.s3.endpoint, "prefix": "in", "follow": True}
        sensors = {"type": "mqtt", "host": "127.0.0.1", "port": self.mosquitto.port, "topics": ["sensors/#"], "qos": 2}
        sources: dict[str, dict[str, Any]] = {
            "posted": {"type": "http", "listen": f"127.0.0.1:{http_port}", "journal": small},
            "sensed": {**sensors, "journal": small},
            "stored": objects,
        }
        self.gateway = TownGateway(
            folder, {"together": several(sources, {"type": "file", "path": str(folder / "out")})}, api_port
        )
        self.posted = HttpSender(http_port)
        self.senders: dict[str, Sender] = {
            "posted": self.posted,
            "sensed": MqttSender(self.mosquitto.port, "sensors/one"),
            "stored": BucketSender(self.s3.client(), bucket, "in"),
        }

    def rows(self, stream: str) -> list[dict[str, Any]]:
        """Return the results of one stream, in the order of release; of objects in the order of their events."""
        rows = [row for row in file_rows(self.folder / "out") if row.pop("stream") == stream]
        return in_order_of_objects(rows) if stream == "stored" else rows

    def progress(self) -> list[int]:
        """Return how many results each stream has."""
        return [len(self.rows(stream)) for stream in self.senders]

    def moved_on(self, before: list[int]) -> bool:
        """Whether each stream has more results than ``before``."""
        return all(now > old for now, old in zip(self.progress(), before, strict=True))

    def settle(self) -> None:
        """Let the senders end, and compare everything with their ledgers."""
        for sender in self.senders.values():
            sender.stop()
        readers: dict[Sender, Callable[[], list[dict[str, Any]]]] = {
            sender: partial(self.rows, stream) for stream, sender in self.senders.items()
        }
        all_arrived(readers)
        self.gateway.drain()
        wrong = [account(sender, rows()) for sender, rows in readers.items()]
        wrong.append(dead_letters_account(self.posted, self.gateway.dead_letters("together")))
        assert not any(wrong), "\n".join(text for text in wrong if text)

    def close(self) -> None:
        """End all of it."""
        for sender in self.senders.values():
            sender.give_up()
        if self.gateway.runs:
            self.gateway.kill()
        end_hosts(self.gateway.state_dir)
        self.mosquitto.stop()
        self.s3.stop()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeSources]:
    """Three sources, each with something listening."""
    sources = ThreeSources(tmp_path)
    yield sources
    sources.close()


@pytest.mark.timeout(3600)
def test_the_gateway_killed_over_three_sources_of_one_query(
    three: ThreeSources, scale: Scale, figures: Figures
) -> None:
    print(f"seed {scale.seed}")
    chance, kills = random.Random(scale.seed), scale.times(2, 50)
    three.gateway.start_ready()
    for sender in three.senders.values():
        sender.start()
    for _ in range(kills):
        until(partial(three.moved_on, three.progress()), "results of all sources")
        time.sleep(chance.uniform(0, 1.5))
        three.gateway.kill()
        three.gateway.start_ready()
    three.settle()
    taken = {stream: len(sender.taken) for stream, sender in three.senders.items()}
    assert all(taken.values())
    figures.add(
        "gateway with a query over three sources (http, mqtt, s3): kill -9",
        times=kills,
        outcome=f"{sum(taken.values()):,} events: 0 lost, 0 twice, 0 out of order",
    )
