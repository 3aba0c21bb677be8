"""The senders of the fault tests: they send events, and keep a ledger of what was accepted."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import paho.mqtt.client as paho
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

# Large and rare: each small micro-batch of Spark costs as much as a large one.
BUNCH = 40
PAUSE_S = 0.4
# Each so-many-th bunch holds a record that is no event.
BAD_EACH = 3
# As many messages as mosquitto takes at once from a client. paho heeds that limit, but not when it connects again: then
# it sends all that waits. mosquitto refuses the rest, one of them with a PUBREC, which paho takes for a success.
MQTT_IN_FLIGHT = 20


def event(n: int, keys: int = 0) -> bytes:
    """The event with this number, which has one of so many keys."""
    return json.dumps({"id": f"event {n}", "n": n, **({"k": n % keys} if keys else {})}).encode()


def bad(bunch: int) -> bytes:
    """A record that is not an event."""
    return b'{"n": "%d is no number of an event", "bad": \xff}' % bunch


class Sender(threading.Thread):
    """Sends batch after batch until ``stop``; a batch that was not accepted is sent again.

    Args:
        pause_s: time between two batches.

    Attributes:
        pause_s: the same; may be changed.
        taken: numbers of events that were acknowledged, in the order in which they were sent.
        unknown: numbers whose sending failed without an answer: each may be there once, or not.
        bad_taken: batches whose bad record was acknowledged.
    """

    def __init__(self, pause_s: float = PAUSE_S) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.taken: list[int] = []
        self.unknown: set[int] = set()
        self.bad_taken: list[int] = []
        self.error: BaseException | None = None
        self._stopped = threading.Event()
        self._numbers = count()
        self.pause_s = pause_s
        self._goes = threading.Event()
        self._goes.set()

    def run(self) -> None:
        """Send; the first error that is not an outage ends the sender and is kept."""
        try:
            self._send_all()
        except BaseException as error:  # told to the test by ``stop``
            self.error = error

    def _send_all(self) -> None:
        raise AssertionError("a sender says how it sends")

    def _bunches(self) -> Iterator[tuple[int, list[int]]]:
        bunches = count()
        while not self._stopped.wait(self.pause_s):
            self._goes.wait()
            if not self._stopped.is_set():
                yield next(bunches), [next(self._numbers) for _ in range(BUNCH)]

    def rest(self) -> None:
        """Send no further batch for now."""
        self._goes.clear()

    def go_on(self) -> None:
        """End a rest, at once."""
        self._goes.set()

    def give_up(self) -> None:
        """Stop sending; batches in progress need not be acknowledged."""
        self._stopped.set()
        self._goes.set()

    def stop(self) -> None:
        """Stop sending; return when batches in progress are acknowledged."""
        self.give_up()
        self.join(120)
        assert not self.is_alive(), f"{self.name} could not send its last bunch"
        self.check()

    def check(self) -> None:
        """Fail if an error has ended the sender."""
        assert self.error is None, f"{self.name} ended: {self.error!r}"


class HttpSender(Sender):
    """POSTs each batch with its own key, until the answer is 200."""

    def __init__(self, port: int, pause_s: float = PAUSE_S) -> None:
        super().__init__(pause_s)
        self._port = port

    def _send_all(self) -> None:
        for bunch, numbers in self._bunches():
            lines = [event(n) for n in numbers]
            if bunch % BAD_EACH == 0:
                lines.insert(3, bad(bunch))
            while not self._posted(b"\n".join(lines), f"bunch-{bunch}"):
                self._stopped.wait(PAUSE_S)
            self.taken += numbers
            if bunch % BAD_EACH == 0:
                self.bad_taken.append(bunch)

    def _posted(self, body: bytes, key: str) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("POST", "/events", body, {"Idempotency-Key": key})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return False  # the gateway is away, or died before it answered: the same key again
        finally:
            connection.close()
        assert status in (200, 429, 503), f"POST was answered with {status}"
        return status == 200


class FileSender(Sender):
    """Puts files into a folder, one for each bunch, complete when they appear."""

    def __init__(self, folder: Path, keys: int = 0) -> None:
        super().__init__()
        self._folder = folder
        self._keys = keys
        folder.mkdir()

    def _send_all(self) -> None:
        for bunch, numbers in self._bunches():
            path = self._folder / f"{bunch:06}.jsonl"
            path.with_suffix(".tmp").write_bytes(b"".join(event(n, self._keys) + b"\n" for n in numbers))
            path.with_suffix(".tmp").rename(path)
            self.taken += numbers


class BucketSender(Sender):
    """Puts objects below a prefix, one for each bunch; their names are not in the order in which they appear.

    So who lists the objects anew gives them other numbers than those that had seen them appear.
    """

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        super().__init__()
        self._client = client
        self._bucket = bucket
        self._prefix = prefix
        self._there: dict[str, list[int]] = {}

    def _send_all(self) -> None:
        for bunch, numbers in self._bunches():
            key = f"{self._prefix}/{f'{bunch:06}'[::-1]}.jsonl"
            body = b"".join(event(n) + b"\n" for n in numbers)
            self._client.put_object(Bucket=self._bucket, Key=key, Body=body)
            self.taken += numbers
            self._there[key] = numbers

    def done(self, processed: Callable[[int], bool]) -> list[str]:
        """Return the keys of the objects that are there and of which all events are processed."""
        return [key for key, numbers in list(self._there.items()) if all(map(processed, numbers))]

    def remove(self, keys: list[str]) -> None:
        """Remove objects, as a user does who needs them no more."""
        for key in keys:
            self._client.delete_object(Bucket=self._bucket, Key=key)
            del self._there[key]


class KafkaSender(Sender):
    """Produces with an idempotent producer; a batch without an answer is given up, and counts as unknown."""

    def __init__(self, brokers: str, topic: str) -> None:
        super().__init__()
        self._brokers = brokers
        self._topic = topic

    def _send_all(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self._brokers, enable_idempotence=True, linger_ms=2)
        await producer.start()
        try:
            for _, numbers in self._bunches():
                sent = [await producer.send(self._topic, event(n), partition=0) for n in numbers]
                for n, answer in zip(numbers, sent, strict=True):
                    try:
                        await asyncio.wait_for(answer, 60)
                    except (KafkaError, TimeoutError):
                        self.unknown.add(n)
                    else:
                        self.taken.append(n)
        finally:
            await producer.stop()


class MqttSender(Sender):
    """Publishes at QoS 2 in a session that the broker keeps, at most ``MQTT_IN_FLIGHT`` messages at once."""

    def __init__(self, port: int, topic: str) -> None:
        super().__init__()
        self._port = port
        self._topic = topic

    def _send_all(self) -> None:
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id="fault sender", protocol=paho.MQTTv5)
        client.max_queued_messages_set(0)
        client.reconnect_delay_set(1, 1)
        expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call] # paho has no type for it
        expiry.SessionExpiryInterval = 3600
        # Not wait_for_publish: it raises for good on a message that was published while the connection was away,
        # although the client keeps that message and sends it later.
        completed: Queue[int] = Queue()
        client.on_publish = lambda _client, _data, mid, _reason, _properties: completed.put(mid)
        client.connect("127.0.0.1", self._port, clean_start=False, properties=expiry)
        client.loop_start()
        try:
            for _, numbers in self._bunches():
                for first in range(0, len(numbers), MQTT_IN_FLIGHT):
                    some = numbers[first : first + MQTT_IN_FLIGHT]
                    waiting = {client.publish(self._topic, event(n), 2).mid for n in some}
                    while waiting:
                        try:
                            waiting.discard(completed.get(timeout=60))
                        except Empty:
                            raise AssertionError("the broker did not take a message within a minute") from None
                    self.taken += some
        finally:
            client.disconnect()
            client.loop_stop()
