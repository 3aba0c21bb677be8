"""Options of Spark's Kafka connector, whose clients are Java's."""

from __future__ import annotations

from pathlib import Path

from infra.messages import BrokerAccess

_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def options(access: BrokerAccess) -> dict[str, str]:
    """Return the options by which a source or a sink reaches its brokers.

    Raises:
        OSError: a file of TLS cannot be read.
    """
    found = {"bootstrap.servers": access.brokers}
    transport = "SSL" if access.tls else "PLAINTEXT"
    found["security.protocol"] = f"SASL_{transport}" if access.mechanism else transport
    if access.ca:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": Path(access.ca).read_text()}
    if access.certificate:
        chain, key = Path(access.certificate).read_text(), Path(access.key).read_text()
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    if access.mechanism:
        login = f"username={_quoted(access.user)} password={_quoted(access.password)};"
        found["sasl.mechanism"] = access.mechanism
        found["sasl.jaas.config"] = f"{_MODULES[access.mechanism]} required {login}"
    return {f"kafka.{name}": value for name, value in found.items()}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
