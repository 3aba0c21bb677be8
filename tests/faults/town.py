"""A gateway among real neighbours: files to files, Kafka to Kafka, HTTP to files, MQTT to S3, and ledgers of it all."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from ruamel.yaml import YAML

from gateway.sources.mqtt.session import RECEIVE_MAX
from gateway.views.http.access import read_token
from tests.connectors.kafka_broker import Broker
from tests.connectors.mosquitto import Mosquitto
from tests.connectors.ports import free_ports
from tests.connectors.s3_reader import read_results
from tests.connectors.s3_server import CREDENTIALS, Fault, FaultProxy, S3Server
from tests.e2e.harness import end_hosts, parts_in, processes_with, until
from tests.faults.readers import topic_rows
from tests.faults.senders import BUNCH, PAUSE_S, FileSender, HttpSender, KafkaSender, MqttSender, Sender, bad

SCHEMA = "id STRING, n BIGINT"
SQL = "SELECT id, n, n * 2 AS twice FROM events WHERE n % 10 <> 3"
ELSEWHERE = re.compile(r"lane (vm-[\w-]+) lost .*?(\d+) runs go elsewhere after (\d+) ms")
# Most events go to the VM while there is one, however idle home is.
EAGER = {
    "share": "95%",
    "start_vm_above": "20ms",
    "send_above": "1ms",
    "keep_vm_above": "1ms",
    "keep_vm_bytes": "0B",
    "tolerance": "0s",
}
# One VM, which is paid for as long as a test lasts: a gateway that is started again adopts it.
ONE_VM = {
    "max_vms": 1,
    # A busy machine may need minutes to start a second Spark: a launch is given up after six times as long.
    "boot": "40s",
    "billing": {"period": "4h", "minimum": "4h", "usd_per_hour": 0.001, "usd_per_gb_sent": 0.09},
    "budget": {"usd_per_day": 100},
}
# Few micro-batches, which are what costs: a test may have two cores for two Sparks and all else.
LINGER = "1s"
READY_DEADLINE_S = 120.0
# The senders' pause while most events would be answered at home.
SLOW_S = 0.9
# On a busy machine Spark may fail to open four queries in time: that VM is terminated, and another one launched.
LAUNCHED_S = 600.0
# What is sent must have arrived so long after the last fault; generous, since the machine is noisy.
ARRIVAL_DEADLINE_S = 180.0


class TownGateway:
    """The gateway process, which is started again and again with the same state.

    Args:
        folder: state, log and config.
        queries: the ``queries`` part of the config.
        api_port: the port of its API.
        cloud: overrides of the ``cloud`` part, which has no VMs.
        private: overrides of the ``private`` part.
        gateway: overrides of the ``gateway`` part.
    """

    def __init__(
        self,
        folder: Path,
        queries: dict[str, Any],
        api_port: int,
        *,
        cloud: dict[str, Any] | None = None,
        private: dict[str, Any] | None = None,
        gateway: dict[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self._api_port = api_port
        self._config = folder / "town.yaml"
        self.log = folder / "gateway.log"
        document = {
            "gateway": {
                "state_dir": str(self.state_dir),
                "slot": "500ms",
                "api": {"listen": f"127.0.0.1:{api_port}"},
                "orphan_after": "300s",
                **(gateway or {}),
            },
            "private": {"spark": {"master": "local[1]"}, **(private or {})},
            "cloud": {
                "provider": "process",
                "max_vms": 0,
                "boot": "1s",
                "billing": {"period": "10s", "minimum": "10s", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
                "budget": {"usd_per_day": 5},
                **(cloud or {}),
            },
            "queries": queries,
        }
        with self._config.open("w") as file:
            YAML(typ="safe").dump(document, file)
        self._process: subprocess.Popen[bytes] | None = None
        self._begin = folder / "failpoints-begin"
        self._earlier: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()

    def start(self, failpoints: str = "", *, armed: bool = True) -> None:
        """Start the process; the failpoints work from its start on, or from ``arm`` on."""
        command = [sys.executable, "-m", "gateway", "run", str(self._config), "--keep-hosts"]
        environment = {**os.environ, **CREDENTIALS, "SPILLWAY_FAILPOINTS": failpoints}
        environment["SPILLWAY_FAILPOINTS_FROM"] = str(self._begin)
        self._begin.unlink(missing_ok=True)
        if armed:
            self.arm()
        self._earlier += self._answered
        self._answered.clear()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def arm(self) -> None:
        """Let the failpoints work from now on."""
        self._begin.touch()

    def start_ready(self) -> float:
        """Start it, and return how many seconds passed until it printed that it was ready."""
        self.start()
        return self.wait_ready()

    def wait_ready(self) -> float:
        """Return how many seconds pass until it prints that it is ready."""
        begun_s = time.monotonic()
        while not self.ready():
            assert self.runs, f"the gateway ended instead of becoming ready:\n{self.tail()}"
            assert time.monotonic() - begun_s < READY_DEADLINE_S, f"the gateway was not ready:\n{self.tail()}"
            time.sleep(0.02)
        return time.monotonic() - begun_s

    def status(self) -> dict[str, Any]:
        """Return the gateway's status."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._api_port}/status", timeout=60) as answer:
            return dict(json.load(answer))

    def has_vm(self, *states: str) -> bool:
        """Return whether a VM is in one of these states."""
        return not set(states).isdisjoint(self.status()["vms"].values())

    def look(self) -> int:
        """Note which site has answered how many events; return how many runs are under way on VMs."""
        queries = self.status()["queries"]
        self._answered.clear()
        for name, each in queries.items():
            for lane, events in each["events_by_lane"].items():
                self._answered["home" if lane == "home" else name] += events
        lanes = [lane for each in queries.values() for lane in each["runs_in_lanes"].items()]
        return sum(runs for lane, runs in lanes if lane != "home")

    def answered(self, query: str) -> int:
        """How many events of a query were answered since the process started."""
        return sum(self.status()["queries"][query]["events_by_lane"].values())

    @property
    def answered_at_home(self) -> int:
        """How many events home had answered when we looked last, in all lives of the gateway."""
        return self._earlier["home"] + self._answered["home"]

    @property
    def answered_by_vms(self) -> Counter[str]:
        """How many events of each query VMs had answered when we looked last, in all lives of the gateway."""
        found = self._earlier + self._answered
        del found["home"]
        return found

    def elsewhere(self) -> list[tuple[int, int]]:
        """(runs, ms) of each lane to a VM that was lost so far."""
        found = ELSEWHERE.findall(self.log.read_text(errors="replace"))
        return [(int(runs), int(took_ms)) for _, runs, took_ms in found]

    def host_pids(self, of: str) -> list[int]:
        """The processes of the engine hosts that run at ``home``, or of the ``vms``."""
        records = [json.loads(path.read_text()) for path in (self.state_dir / of).glob("vm-*.json")]
        return [record["pid"] for record in records if record["stage"] == "running"]

    def orphans(self) -> list[str]:
        """Return the records and processes of VMs that are left."""
        folder = self.state_dir / "vms"
        left = [f"process {pid}" for pid in processes_with(f"{folder}/")]
        return left + [path.name for path in folder.glob("vm-*.json")]

    def ready(self) -> bool:
        """Return whether ``/ready`` answers 200."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._api_port}/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stands_by(self) -> bool:
        """Return whether it waits for the lease of its fleet, with its engine host ready."""
        assert self.runs, f"the gateway ended instead of standing by:\n{self.tail()}"
        try:
            return bool(self.status()["phase"] == "standby")
        except (urllib.error.URLError, OSError):
            return False

    @property
    def runs(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Stop it with SIGSTOP, as a machine does that hangs or is suspended."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def is_frozen(self) -> bool:
        """Return whether the process is stopped."""
        assert self._process is not None
        return psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def thaw(self) -> int:
        """Let it go on, and return the exit code with which it ends."""
        self.resume()
        assert self._process is not None
        return self._process.wait(READY_DEADLINE_S)

    def wait_killed(self, deadline_s: float) -> bool:
        """Return whether the process ended by SIGKILL in time."""
        assert self._process is not None
        try:
            return self._process.wait(deadline_s) == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            return False

    def ask_for_replay(self, query: str, deadline_s: float) -> None:
        """Request a replay of a query's dead letters, again and again until the gateway dies from it."""
        token = read_token(self.state_dir / "api-token")
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._api_port}/queries/{query}/replay-dead-letters",
            b"{}",
            {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
        )
        ends = time.monotonic() + deadline_s
        while self.runs and time.monotonic() < ends:
            try:
                urllib.request.urlopen(request, timeout=5).close()
            except (urllib.error.URLError, OSError, http.client.HTTPException):
                time.sleep(0.1)  # not ready yet, or dying

    def stop(self) -> None:
        """Request an orderly end."""
        assert self._process is not None
        self._process.terminate()

    def drain(self) -> None:
        """Request an orderly end, and check that it succeeds."""
        assert self._process is not None
        self.stop()
        code = self._process.wait(READY_DEADLINE_S)
        assert code == 0, f"exit code {code}:\n{self.tail()}"

    def tail(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-6000:]

    def dead_letters(self, query: str) -> list[dict[str, Any]]:
        """Return the dead letters of a query."""
        path = self.state_dir / "queries" / query / "dead-letters.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def query(source: dict[str, Any], sink: dict[str, Any], linger: str = "100ms") -> dict[str, Any]:
    """Return a query that keeps nine events of ten."""
    # A busy machine may need longer than the default to start Spark again, and then results would rightly come late.
    order = {"flush": "240s"}
    # The targets are always met. So one query after another goes to the VM, without the proof that the last one helped.
    return {
        "source": source,
        "schema": SCHEMA,
        "sql": SQL,
        "sink": sink,
        "qos": {"latency": "10m"},
        "runs": {"linger": linger},
        "order": order,
        "switching": EAGER,
    }


def several(sources: dict[str, dict[str, Any]], sink: dict[str, Any]) -> dict[str, Any]:
    """Return a query that puts the events of several sources together, each row with the name of its stream."""
    found = query({}, sink)
    del found["source"], found["schema"]
    found["sources"] = {name: {"source": source, "schema": SCHEMA} for name, source in sources.items()}
    rows = (SQL.replace("SELECT", f"SELECT '{name}' AS stream,").replace("events", name) for name in sources)
    found["sql"] = " UNION ALL ".join(rows)
    return found


def in_order_of_objects(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of objects that are processed in any order, as if in the order in which they were sent."""
    return sorted(rows, key=lambda row: int(row["n"]) // BUNCH)


class Town:
    """A gateway, its neighbours, and the senders with their ledgers.

    Args:
        folder: for all of it.
        broker: Kafka.
        cloud: overrides of the ``cloud`` part, which has no VMs.
    """

    def __init__(self, folder: Path, broker: Broker, cloud: dict[str, Any]) -> None:
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
        self._posted = HttpSender(self._http_port)
        self.senders: dict[Sender, Callable[[], list[dict[str, Any]]]] = {
            self._posted: lambda: file_rows(folder / "posted"),
            KafkaSender(broker.brokers, self.topic_in): lambda: topic_rows(broker.brokers, self.topic_out),
            MqttSender(self.mosquitto.port, "sensors/one"): lambda: read_results(self.s3.client(), self.bucket, "out"),
            FileSender(folder / "in"): lambda: file_rows(folder / "filed"),
        }
        # In a shorter slot a query may have no event. Then its latency is 0, and it leaves the VM.
        slot = {"slot": "1s"}
        # A gateway that is started again has the permit of its VM again; otherwise it would terminate the VM.
        store = {"bucket": self.bucket, "prefix": "shared", "endpoint": self.s3.endpoint}
        quota = {"quota": {"name": "town", "max_vms": 1, "usd_per_day": 100}, "object_store": store}
        self.gateway = TownGateway(folder, self._queries(), api_port, cloud=cloud, gateway={**slot, **quota})

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
        filed = {"type": "file", "path": str(self.folder / "in"), "follow": True}
        results = {"type": "s3", "bucket": self.bucket, "prefix": "out", "endpoint": self.proxy.endpoint}
        return {
            "posted": query(posted, {"type": "file", "path": str(self.folder / "posted")}, LINGER),
            "streamed": query(
                streamed, {"type": "kafka", "brokers": self.broker.brokers, "topic": self.topic_out}, LINGER
            ),
            "sensed": query(sensed, results, LINGER),
            "filed": query(filed, {"type": "file", "path": str(self.folder / "filed")}, LINGER),
        }

    def send(self) -> None:
        """Let all senders begin."""
        for sender in self.senders:
            sender.start()

    def until_the_cloud_holds(self, part: float) -> None:
        """Wait until runs are under way on a VM, and VMs have answered this part of all events so far.

        While a VM starts, the senders rest: home would answer all of it, and a second Spark starts beside it. Until
        the VM has runs again, they send less, for the same reason.
        """
        self.pace(SLOW_S)
        if not self.gateway.has_vm("idle", "sending"):
            until(lambda: self.gateway.has_vm("starting", "idle", "sending"), "a VM is launched")
            self._rest()
            until(lambda: self.gateway.has_vm("idle", "sending"), "a VM is ready", LAUNCHED_S)
            self._go_on()
        until(lambda: self.gateway.look() > 0, "runs are under way on a VM")
        self.pace(PAUSE_S)
        until(lambda: self._holds(part), f"runs are under way on a VM, and VMs have answered {part:.0%} of all events")

    def _holds(self, part: float) -> bool:
        return self.gateway.look() > 0 and self.gateway.answered_by_vms.total() >= part * self.taken

    def _rest(self) -> None:
        for sender in self.senders:
            sender.rest()

    def pace(self, pause_s: float) -> None:
        """Let the senders pause for so long between two batches."""
        for sender in self.senders:
            sender.pause_s = pause_s

    def _go_on(self) -> None:
        for sender in self.senders:
            sender.go_on()

    def settle(self) -> None:
        """Let the senders end, wait for what they sent, drain, and compare everything with the ledgers."""
        if not self.gateway.runs:
            self.gateway.start_ready()
        for sender in self.senders:
            sender.stop()
        all_arrived(self.senders)
        self.gateway.look()
        self.gateway.drain()
        wrong = [account(sender, rows()) for sender, rows in self.senders.items()]
        wrong.append(dead_letters_account(self._posted, self.gateway.dead_letters("posted")))
        assert not any(wrong), "\n".join(text for text in wrong if text)
        assert not self.gateway.orphans()

    def s3_fails(self, fault: Fault, for_s: float) -> None:
        """Let the object store answer like this for a while."""
        self.s3_fault = fault
        time.sleep(for_s)
        self.s3_fault = ""

    def mosquitto_restarts(self) -> None:
        """Stop it in order, and start it again, once the gateway can recognise what mosquitto may then send twice.

        It can after as many messages as may be under way (decision 78). The first ones that it processes after its
        start may come from its journal: they do not count, and are fewer.
        """
        until(lambda: self.gateway.answered("sensed") > 2 * RECEIVE_MAX, "many messages came since the gateway started")
        self.mosquitto.stop()
        self.mosquitto.start()

    @property
    def taken(self) -> int:
        """How many events the ledgers hold."""
        return sum(len(sender.taken) for sender in self.senders)

    def close(self) -> None:
        """End all of it."""
        for sender in self.senders:
            sender.give_up()
        if self.gateway.runs:
            self.gateway.kill()
        end_hosts(self.gateway.state_dir)
        self.mosquitto.stop()
        self.proxy.stop()
        self.s3.stop()


def file_rows(folder: Path) -> list[dict[str, Any]]:
    """Read the rows of a file sink in the order of release."""
    return [json.loads(line) for part in parts_in(folder) for line in (folder / str(part)).read_bytes().splitlines()]


def doubled(n: int) -> dict[str, Any]:
    """The result of ``SQL`` for an event."""
    return {"id": f"event {n}", "n": n, "twice": 2 * n}


def account(sender: Sender, rows: list[dict[str, Any]], answer: Callable[[int], dict[str, Any]] = doubled) -> str:
    """Compare rows with a sender's ledger; return what is wrong, or ""."""
    found = [int(row["n"]) for row in rows]
    wanted = {n for n in sender.taken if n % 10 != 3}
    lost = wanted - set(found)
    strange = set(found) - wanted - sender.unknown
    twice = len(found) - len(set(found))
    wrong = [row for row in rows if row != answer(row["n"])]
    disorder = sum(later < earlier for earlier, later in pairwise(found))
    if not (lost or strange or twice or wrong or disorder):
        return ""
    return (
        f"{sender.name}: {len(lost)} lost {sorted(lost)[:5]}, {twice} twice, {len(strange)} strange "
        f"{sorted(strange)[:5]}, {len(wrong)} wrong {wrong[:2]}, {disorder} out of order"
    )


def arrived(sender: Sender, rows: Callable[[], list[dict[str, Any]]]) -> Callable[[], bool]:
    """Return a condition: everything that was accepted from the sender is there."""
    wanted = {n for n in sender.taken if n % 10 != 3}
    return lambda: wanted <= {int(row["n"]) for row in rows()}


def all_arrived(senders: dict[Sender, Callable[[], list[dict[str, Any]]]]) -> None:
    """Wait until every ledger is complete."""
    for sender, rows in senders.items():
        until(arrived(sender, rows), f"all events of {sender.name} have arrived", ARRIVAL_DEADLINE_S)


def dead_letters_account(sender: Sender, letters: list[dict[str, Any]]) -> str:
    """Compare dead letters with the bad records that were sent; return what is wrong, or ""."""
    raws = [base64.b64decode(x["raw_base64"]) if "raw_base64" in x else x["raw"].encode() for x in letters]
    wanted = [bad(bunch) for bunch in sender.bad_taken]
    # Those that were replayed and failed again stand behind the others.
    if sorted(raws) == sorted(wanted):
        return ""
    return f"{len(raws)} dead letters, {len(wanted)} bad records: {raws[:2]} {wanted[:2]}"
