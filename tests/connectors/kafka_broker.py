"""A real Kafka broker for tests: one KRaft node on loopback, started from the jars that ``.ci/broker`` downloaded."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.connectors.ports import free_ports

JARS = Path(__file__).parents[2] / "build" / "kafka" / "jars"
START_S = 90.0
STOP_S = 30.0
USER = "gateway"
PASSWORD = "not much of a secret"
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{address}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAIN://{address}:{plain},SASL://{address}:{sasl},TLS://{address}:{tls},CONTROLLER://{address}:{controller}
advertised.listeners=PLAIN://{address}:{plain},SASL://{address}:{sasl},TLS://{address}:{tls}
listener.security.protocol.map=PLAIN:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.location={folder}/keystore.pem
listener.name.tls.ssl.truststore.type=PEM
listener.name.tls.ssl.truststore.location={folder}/certificate.pem
listener.name.tls.ssl.client.auth=required
inter.broker.listener.name=PLAIN
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
log.dirs={data}
auto.create.topics.enable=false
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
num.network.threads=2
num.io.threads=2
metadata.max.idle.interval.ms=0
log.cleaner.dedupe.buffer.size=2097152
"""
_PROBE = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1)"
_HEAP = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class Broker:
    """One broker; its ports and its data stay the same when it is restarted.

    The methods that start and stop it block for seconds: call them with ``asyncio.to_thread`` if an event loop runs.

    Args:
        folder: for its config, log and data.
        address: where it listens.
        inside: begins the command of each of its processes, for example to run it in a network namespace.

    Attributes:
        brokers: host:port for clients without a login.
        sasl_brokers: host:port for clients that log in as ``USER`` (PLAIN or SCRAM).
        tls_brokers: host:port for clients with a certificate.
        tls: the settings of such a client, as in the config.
    """

    def __init__(self, folder: Path, address: str = "127.0.0.1", inside: Sequence[str] = ()) -> None:
        self._folder, self._address, self._inside = folder, address, tuple(inside)
        plain, sasl, tls, controller = free_ports(4)
        self.brokers = f"{address}:{plain}"
        self.sasl_brokers = f"{address}:{sasl}"
        self.tls_brokers = f"{address}:{tls}"
        self._port = plain
        self._settings = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self._java = _java()
        folder.mkdir(parents=True, exist_ok=True)
        self.tls = _certificate(folder, address)
        text = _SETTINGS.format(
            address=address,
            plain=plain,
            sasl=sasl,
            tls=tls,
            controller=controller,
            folder=folder,
            data=folder / "data",
            user=USER,
            password=PASSWORD,
        )
        self._settings.write_text(text)
        self._format()

    def start(self) -> None:
        """Start it; return when it accepts connections."""
        assert self._process is None, "the broker runs already"
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        ends = time.monotonic() + START_S
        while not self._listens():
            if self._process.poll() is not None:
                raise AssertionError(f"the broker ended by itself:\n{self._log()}")
            assert time.monotonic() < ends, f"the broker took no connection in {START_S:g} s:\n{self._log()}"
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it in order; do nothing if it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """Kill it at once, like a power cut (but data that the system has buffered stays)."""
        assert self._process is not None, "the broker does not run"
        self._process.kill()
        self._process.wait()
        self._process = None

    def restart(self) -> None:
        """Stop it if it runs, and start it with the same data."""
        self.stop()
        self.start()

    async def create_topic(
        self, name: str | None = None, *, partitions: int = 1, settings: dict[str, str] | None = None
    ) -> str:
        """Create a topic and return its name; without a name, the topic gets a new one."""
        topic = name or f"t-{uuid.uuid4().hex[:12]}"
        new = NewTopic(topic, partitions, 1, topic_configs=settings or {})
        async with self.admin() as admin:
            answer: Any = await admin.create_topics([new])
        assert all(error[1] == 0 for error in answer.topic_errors), answer
        return topic

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        """A client for administration."""
        client = AIOKafkaAdminClient(bootstrap_servers=self.brokers)
        await client.start()
        try:
            yield client
        finally:
            await client.close()

    def _format(self) -> None:
        # the first byte is fixed: of 64 random ids one would begin with "-", which is read as an option
        cluster = urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        logins = [
            word
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for word in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
        ]
        command = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings), *logins]
        done = subprocess.run(self._command(*command), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"the broker's folder could not be formatted:\n{done.stdout}{done.stderr}"

    def _command(self, *arguments: str) -> list[str]:
        return [*self._inside, self._java, *_HEAP, "-cp", f"{JARS}/*", *arguments]

    def _listens(self) -> bool:
        if self._inside:
            probe = [*self._inside, sys.executable, "-c", _PROBE, self._address, str(self._port)]
            return subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode == 0
        try:
            socket.create_connection((self._address, self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def _log(self) -> str:
        return (self._folder / "broker.log").read_text(errors="replace")[-4000:]


def _certificate(folder: Path, address: str) -> dict[str, str]:
    """Create one certificate, which the broker and its clients present and trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for file, content in {
        "key.pem": secret,
        "certificate.pem": certificate,
        "keystore.pem": secret + certificate,
    }.items():
        (folder / file).write_bytes(content)
    shown = str(folder / "certificate.pem")
    return {"ca": shown, "certificate": shown, "key": str(folder / "key.pem")}


def _java() -> str:
    if not list(JARS.glob("kafka_*.jar")):
        raise AssertionError(f"the jars of the Kafka broker are not in {JARS}: run .ci/broker (make test does)")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise AssertionError("the Kafka broker of the tests needs Java 17 or later: run .ci/java (make test does)")
    return java
