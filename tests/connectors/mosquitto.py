"""A real mosquitto for a test: a process on a free loopback port that can be stopped, killed and started again."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.connectors.ports import free_port

DEADLINE_S = 60.0
_PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Return once ``condition`` holds; fail the test if it does not hold in time."""
    ends = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.01)


def program() -> str:
    """Return the path of mosquitto, or fail the test."""
    found = shutil.which("mosquitto", path=_PLACES)
    assert found, "mosquitto is missing: run make mosquitto, or install it (Debian/Ubuntu: apt-get install mosquitto)"
    return found


class Mosquitto:
    """A broker that keeps its sessions on disk.

    Args:
        folder: for its config, log and sessions.
        settings: more lines for its config file.
        listener: lines of the config for its only listener, for example TLS.
    """

    def __init__(self, folder: Path, settings: Iterable[str] = (), listener: Iterable[str] = ()) -> None:
        self._folder = folder
        self._settings = list(settings)
        self._listener = list(listener)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> Mosquitto:
        """Start it, and return once it accepts connections."""
        anybody = [] if any(line.startswith("password_file") for line in self._settings) else ["allow_anonymous true"]
        lines = [
            f"user {getpass.getuser()}",
            "persistence true",
            f"persistence_location {self._folder}/",
            "max_queued_messages 0",
            "set_tcp_nodelay true",
            *anybody,
            *self._settings,
            f"listener {self.port} 127.0.0.1",
            *self._listener,
        ]
        config = self._folder / "mosquitto.conf"
        config.write_text("\n".join(lines) + "\n")
        with (self._folder / "mosquitto.log").open("ab") as log:
            self._process = subprocess.Popen([program(), "-c", str(config)], stdout=log, stderr=log)
        until(self._accepts, f"mosquitto listens; its log: {self.log()}")
        return self

    def _accepts(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"mosquitto ended: {self.log()}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def log(self) -> str:
        """Return its output."""
        path = self._folder / "mosquitto.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        """Stop it in order: it saves its sessions."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it with SIGKILL: it restarts in the state of its last save."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait(DEADLINE_S)
        self._process = None

    def save(self) -> None:
        """Make it write its sessions to disk now."""
        assert self._process is not None
        path = self._folder / "mosquitto.db"
        before = path.stat().st_mtime_ns if path.exists() else 0
        self._process.send_signal(signal.SIGUSR1)
        until(lambda: path.exists() and path.stat().st_mtime_ns != before, "mosquitto saved")

    def freeze(self) -> None:
        """Freeze it, with its connections open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class Peer:
    """An independent client, only paho: it publishes, and keeps the messages that it receives.

    Args:
        port: the broker's.
        name: its client id; the broker keeps its messages while it is not connected.
    """

    def __init__(self, port: int, name: str = "", setup: Callable[[paho.Client], None] = lambda _: None) -> None:
        self.received: list[paho.MQTTMessage] = []
        self._accepted: set[int] = set()
        self._connected = threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5)
        self._client.on_connect = lambda *_: self._connected.set()
        self._client.on_message = lambda _client, _data, message: self.received.append(message)
        self._client.on_publish = lambda _client, _data, mid, *_: self._accepted.add(mid)
        self._client.max_queued_messages_set(0)
        setup(self._client)
        expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        expiry.SessionExpiryInterval = 3600 if name else 0
        self._client.connect("127.0.0.1", port, clean_start=not name, properties=expiry)
        self._client.loop_start()
        assert self._connected.wait(DEADLINE_S), "the peer is not connected"

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(
        self,
        topic: str,
        payloads: Iterable[bytes],
        qos: int = 1,
        *,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        """Publish, and return when the broker has accepted all of them."""
        # While the broker is away paho keeps what was published, and says so with an error.
        ids = {self._client.publish(topic, payload, qos, retain, properties).mid for payload in payloads}
        until(lambda: ids <= self._accepted, "the broker accepted all messages")
        self._accepted -= ids

    def subscribe(self, topic: str, qos: int = 2) -> None:
        """Subscribe, and return when the broker has confirmed it."""
        done = threading.Event()

        def heard(*_: Any) -> None:
            done.set()

        self._client.on_subscribe = heard
        self._client.subscribe(topic, qos)
        assert done.wait(DEADLINE_S), "the broker did not answer"

    def close(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()


def id_of(message: paho.MQTTMessage) -> str:
    """Return the user property that identifies a result."""
    properties: Any = message.properties
    return str(dict(properties.UserProperty)["spillway-id"])
