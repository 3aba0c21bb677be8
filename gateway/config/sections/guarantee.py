"""The config's key ``delivery``: which guarantee a query insists on, and which sources and sinks can give it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from gateway.config.connectors.mqtt import MqttSourceConfig
from gateway.config.connectors.sinks import SinkConfig
from gateway.config.connectors.sources import SourceConfig
from gateway.config.connectors.streams import key_of
from gateway.config.words.fields import Finding

Delivery = Literal["auto", "exactly_once"]
_ONCE_QOS: Final = 2
"""The QoS at which a broker of MQTT hands out each message once."""


def delivery_findings(delivery: Delivery, inputs: Mapping[str, SourceConfig], sink: SinkConfig) -> list[Finding]:
    """Return why a query cannot deliver as it insists on.

    Args:
        delivery: what it insists on.
        inputs: its sources by the names of their streams.
        sink: where its results go.
    """
    if delivery == "auto":
        return []
    findings = [
        Finding(
            key=(*key_of(stream), "qos"),
            what=f"must be {_ONCE_QOS} with delivery: exactly_once, since the broker may send a message of QoS "
            f"{source.qos} twice or lose it; write qos: {_ONCE_QOS}, or delivery: auto",
        )
        for stream, source in inputs.items()
        if isinstance(source, MqttSourceConfig) and source.qos < _ONCE_QOS
    ]
    if sink.type in ("mqtt", "http"):
        what = (
            f"cannot be exactly_once, since the sink is {sink.type}: a result may come twice, with the same id; choose "
            "a sink file, s3 or kafka, or write delivery: auto"
        )
        findings.append(Finding(key=("delivery",), what=what))
    return findings
