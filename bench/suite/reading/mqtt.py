"""Reading from a real mosquitto: messages that wait in a session of the broker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.config.connectors.mqtt import MqttSourceConfig
from gateway.sources.mqtt.mqttsource import MqttSource, make_mqtt_source
from infra.clock import SystemClock
from suite.reading.decode import NEEDED, lines
from suite.row import Row, SideError, lasts_s
from suite.turns import OURS, Goal, Sample
from tests.connectors.mosquitto import Mosquitto

EVENTS, SHARED = 30_000, 4
READ_EVENTS, READ_BYTES = 20_000, 1 << 24
SESSION_S = 3600
_PORT, _TOPIC, _ID = "SPILLWAY_BENCH_MQTT", "bench/readings", "bench"
_WITHIN_S, _POLL_S = 100.0, 0.001
FIGURES = ("QoS 0, events/s", "QoS 1, events/s")
SHARED_FIGURE = f"QoS 1, {SHARED} clients, events/s"

Subscribe = Callable[[int], object]
Drain = Callable[[int, int], float]
"""Takes the QoS and the number of messages; returns how long it took to receive them, in seconds."""


@contextmanager
def around() -> Iterator[Mapping[str, str]]:
    """Run a broker that keeps any number of messages for those that are away."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        broker = Mosquitto(Path(name), ["queue_qos0_messages true", "max_inflight_messages 1000"]).start()
        try:
            yield {_PORT: str(broker.port)}
        finally:
            broker.stop()


def _events() -> int:
    return max(2_000, int(EVENTS * min(1.0, lasts_s())))


def _publish(qos: int) -> int:
    """Publish from other CPUs; return how many messages."""
    said, count = lines(), _events()
    text = b"".join(said[at % len(said)] + b"\n" for at in range(count))
    command = ["mosquitto_pub", "-p", os.environ[_PORT], "-t", _TOPIC, "-q", str(qos), "-l", "-V", "5"]
    _run(command, text)
    return count


def _run(command: list[str], text: bytes = b"") -> None:
    done = subprocess.run(command, input=text, capture_output=True, timeout=_WITHIN_S, check=False)
    if done.returncode:
        raise SideError(f"{command[0]}: {done.stderr.decode()[-500:]}")


def _rate(qos: int, subscribe: Subscribe, drain: Drain) -> float:
    subscribe(qos)
    count = _publish(qos)
    return count / drain(qos, count)


# --------------------------------------------------------------------------------------------------------------- ours


def _source(folder: Path, qos: int, clients: int) -> MqttSource:
    told = {"type": "mqtt", "host": "127.0.0.1", "port": int(os.environ[_PORT]), "topics": [_TOPIC]}
    config = MqttSourceConfig.model_validate({**told, "qos": qos, "clients": clients})
    query = f"q{qos}{clients}"
    return make_mqtt_source(config, folder, query=query, owner=str(os.getpid()), clock=SystemClock(), strict=False)


async def _read(folder: Path, qos: int, clients: int, count: int) -> float:
    """Read so many messages; return how long it took."""
    source = _source(folder, qos, clients)
    begun_s, found = time.perf_counter(), 0
    await source.open(NEEDED)
    if not count:
        await source.read(1, 1)
    while found < count:
        chunk = await source.read(READ_EVENTS, READ_BYTES)
        if chunk is None:
            await asyncio.sleep(_POLL_S)  # the source's tasks would not run otherwise
            continue
        found += chunk.batch.num_rows
        await source.acknowledge(chunk.end)
    took_s = time.perf_counter() - begun_s
    await source.close()
    return took_s


def _ours(qos: int, clients: int) -> float:
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder = Path(name)
        return _rate(
            qos,
            lambda qos: asyncio.run(_read(folder, qos, clients, 0)),
            lambda qos, count: asyncio.run(_read(folder, qos, clients, count)),
        )


def ours() -> Sample:
    """Measure the gateway's source with its journal: messages are on the disk before they are acknowledged."""
    figures = {figure: _ours(qos, 1) for qos, figure in enumerate(FIGURES)}
    return Sample({**figures, SHARED_FIGURE: _ours(1, SHARED)})


# --------------------------------------------------------------------------------------------------------------- paho


def _client(qos: int) -> paho.Client:
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"{_ID}-paho-{os.getpid()}-{qos}", protocol=paho.MQTTv5)

    def subscribe(*_: object) -> None:
        client.subscribe(_TOPIC, qos)

    client.on_connect = subscribe
    return client


def _connect(client: paho.Client) -> None:
    expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    expiry.SessionExpiryInterval = SESSION_S
    client.connect("127.0.0.1", int(os.environ[_PORT]), clean_start=False, properties=expiry)


def _subscribe_by_paho(qos: int) -> None:
    client, done = _client(qos), threading.Event()
    client.on_subscribe = lambda *_: done.set()
    _connect(client)
    client.loop_start()
    if not done.wait(_WITHIN_S):
        raise SideError("the broker did not answer to a subscription")
    client.disconnect()
    client.loop_stop()


def _drain_by_paho(qos: int, count: int) -> float:
    client, found = _client(qos), 0

    def take(*_: object) -> None:
        nonlocal found
        found += 1
        if found == count:
            client.disconnect()

    client.on_message = take
    begun_s = time.perf_counter()
    _connect(client)
    client.loop_forever()
    return time.perf_counter() - begun_s


def by_paho() -> Sample:
    """Measure paho, which counts the messages."""
    return Sample({figure: _rate(qos, _subscribe_by_paho, _drain_by_paho) for qos, figure in enumerate(FIGURES)})


# ------------------------------------------------------------------------------------------------------ mosquitto_sub


def _mosquitto_sub(qos: int, *more: str) -> list[str]:
    name = f"{_ID}-sub-{os.getpid()}-{qos}"
    session = ["-V", "5", "-i", name, "-c", "-x", str(SESSION_S)]
    return ["mosquitto_sub", "-p", os.environ[_PORT], "-t", _TOPIC, "-q", str(qos), *session, *more]


def _drain_by_sub(qos: int, count: int) -> float:
    begun_s = time.perf_counter()
    _run(_mosquitto_sub(qos, "-C", str(count)))
    return time.perf_counter() - begun_s


def by_sub() -> Sample:
    """Measure the limit: mosquitto's own client, in C, which writes the messages to a pipe."""
    figures = {
        figure: _rate(qos, lambda qos: _run(_mosquitto_sub(qos, "-E")), _drain_by_sub)
        for qos, figure in enumerate(FIGURES)
    }
    return Sample({**figures, SHARED_FIGURE: figures[FIGURES[1]]})


ROW = Row(
    name="mqtt",
    title="from MQTT to Arrow batches: JSON of 226 bytes",
    sides={OURS: ours, "paho": by_paho, "mosquitto_sub": by_sub},
    goals=(
        *(Goal(figure, "paho", 0.95) for figure in FIGURES),
        Goal(SHARED_FIGURE, "mosquitto_sub", 0.5),
    ),
    note=f"{EVENTS:,} messages wait in the subscriber's session of a real mosquitto until it connects. Ours are in the "
    "journal, on the disk, before they are acknowledged, and become columns; paho's are counted. All have one CPU for "
    "the subscriber, and the broker has another.",
    around=around,
)
