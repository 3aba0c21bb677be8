"""Every message that the broker accepted arrives, whichever process is killed; at QoS 2 it arrives once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.mosquitto import DEADLINE_S, Mosquitto, Peer, until
from tests.connectors.mqtt_receiver_process import read_lines
from tests.connectors.mqtt_subject import TOPIC

SEED = 20261121
JOURNAL = {"limit": "1MiB", "segment": "64KiB"}
PADDING = "x" * 300


def _reached(count: Callable[[], int], wanted: int) -> bool:
    return count() >= wanted


def _ended(process: subprocess.Popen[Any]) -> bool:
    return process.poll() is not None


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path / "mosquitto", ["max_inflight_messages 100"]).start()
    yield broker
    broker.kill()


class Receiving:
    """The source in a separate process."""

    def __init__(self, folder: Path, port: int, **said: Any) -> None:
        self._folder = folder
        self._port = port
        self._said = {"journal": JOURNAL, **said}
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()

    def start(self, failpoints: str = "") -> subprocess.Popen[bytes]:
        script = Path(__file__).with_name("mqtt_receiver_process.py")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(script), str(self._folder), str(self._port), json.dumps(self._said)],
            env={**os.environ, "SPILLWAY_FAILPOINTS": failpoints},
        )
        return self._process

    def numbers(self) -> list[int]:
        return [number for line in read_lines(self._folder / "read.jsonl") for number in line.numbers]

    def subscribe(self) -> None:
        """Run once, so that the broker knows the sessions."""
        self.start()
        until(lambda: (self._folder / "open").exists(), "the sessions are there")
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def finish(self, count: int) -> Counter[int]:
        """Let it receive ``count`` different numbers, end it in order, and return how often each number came."""
        process = self.start()
        until(lambda: process.poll() is not None or len(set(self.numbers())) >= count, f"{count} numbers came")
        (self._folder / "stop").touch()
        assert process.wait(DEADLINE_S) == 0
        return Counter(self.numbers())


Begun = Callable[..., Receiving]


@pytest.fixture
def begun(tmp_path: Path, mosquitto: Mosquitto) -> Iterator[Begun]:
    """Provides the folder of a receiving process whose sessions the broker knows; ends the process at the end."""
    made: list[Receiving] = []

    def begin(**said: Any) -> Receiving:
        made.append(Receiving(tmp_path / "source", mosquitto.port, **said))
        made[0].subscribe()
        return made[0]

    yield begin
    for receiving in made:
        receiving.kill()


class Publishing:
    """Publishes numbers until the test stops it; counts the messages that the broker accepted.

    Args:
        port: the broker's port.
        qos: the QoS of the messages.
        read_count: if given, publishing waits until as many numbers were read as were accepted.
    """

    def __init__(self, port: int, qos: int, read_count: Callable[[], int] | None = None) -> None:
        self.accepted = 0
        self._read_count = read_count
        self._port = port
        self._qos = qos
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Publishing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with Peer(self._port, "sender") as peer:
            while not self._stop.is_set():
                numbers = range(self.accepted, self.accepted + 20)
                rows = [json.dumps({"id": f"{n}{PADDING}", "n": n}).encode() for n in numbers]
                peer.publish(TOPIC, rows, self._qos)
                self.accepted += 20
                self._stop.wait(0.03)
                while self._read_count and not self._stop.is_set() and self._read_count() < self.accepted:
                    self._stop.wait(0.01)


def assert_all_came(came: Counter[int], accepted: int, qos: int) -> None:
    assert set(came) == set(range(accepted))
    if qos == 2:
        assert came == Counter(range(accepted))


@pytest.mark.parametrize(("qos", "clients"), [(1, 1), (2, 1), (1, 3), (2, 3)])
def test_killed_at_random_moments(begun: Begun, mosquitto: Mosquitto, qos: int, clients: int) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED + qos + clients)
    receiving = begun(qos=qos, clients=clients)
    with Publishing(mosquitto.port, qos) as publishing:
        for _ in range(6):
            before = len(receiving.numbers())
            receiving.start()
            # From the very start of the process to well into its work.
            wanted = before + chance.choice([0, 1, 50, 200])
            until(partial(_reached, lambda: len(receiving.numbers()), wanted), "some numbers came")
            time.sleep(chance.uniform(0.0, 0.05))
            receiving.kill()
    assert_all_came(receiving.finish(publishing.accepted), publishing.accepted, qos)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(
    "failpoint",
    [
        "journal.append.before",
        "journal.append.written",
        "journal.append.after",
        "journal.unlink.before",
        "journal.unlink.after",
    ],
)
def test_killed_at_a_crash_point(begun: Begun, mosquitto: Mosquitto, qos: int, failpoint: str) -> None:
    receiving = begun(qos=qos)
    with Publishing(mosquitto.port, qos) as publishing:
        for time_of_death in (1, 2) if "unlink" in failpoint else (1, 2, 5):
            process = receiving.start(f"{failpoint}=kill@{time_of_death}")
            until(partial(_ended, process), f"it died at {failpoint}")
            assert process.returncode == -9
    assert_all_came(receiving.finish(publishing.accepted), publishing.accepted, qos)


@pytest.mark.parametrize("qos", [1, 2])
def test_the_broker_restarts_and_the_receiver_is_killed_meanwhile(begun: Begun, mosquitto: Mosquitto, qos: int) -> None:
    """Few messages are in flight: mosquitto repeats answered messages beyond its ``max_inflight_messages``."""
    receiving = begun(qos=qos)
    chance = random.Random(SEED + qos)
    with Publishing(mosquitto.port, qos, lambda: len(set(receiving.numbers()))) as publishing:
        receiving.start()
        for killed in (False, True, False, True):
            wanted = publishing.accepted + 60
            until(partial(_reached, lambda: publishing.accepted, wanted), "numbers come and go")
            time.sleep(chance.uniform(0.0, 0.05))
            mosquitto.stop()
            if killed:
                receiving.kill()
                receiving.start()
            mosquitto.start()
        wanted = publishing.accepted + 60
        until(lambda: publishing.accepted >= wanted, "more numbers were read")
    receiving.kill()
    assert_all_came(receiving.finish(publishing.accepted), publishing.accepted, qos)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_broker_that_is_killed_comes_back_as_it_was_saved(begun: Begun, mosquitto: Mosquitto, qos: int) -> None:
    """The messages that it had saved arrive; it may repeat messages that were acknowledged since its last save."""
    receiving = begun(qos=qos)
    with Publishing(mosquitto.port, qos) as publishing:
        until(lambda: publishing.accepted >= 500, "numbers were accepted")
    process = receiving.start()
    until(lambda: len(receiving.numbers()) >= 100, "some numbers came")
    mosquitto.save()
    mosquitto.kill()
    mosquitto.start()
    until(lambda: len(set(receiving.numbers())) >= publishing.accepted, "all numbers came")
    assert process.poll() is None
    receiving.kill()
    assert set(receiving.numbers()) == set(range(publishing.accepted))
