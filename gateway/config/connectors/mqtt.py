"""The config's sections about MQTT."""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Literal

from pydantic import Field, field_validator

from gateway.config.connectors.journal import JournalConfig
from gateway.config.connectors.security import LoginConfig, TlsConfig
from gateway.config.words.fields import Finding, Section, refuse

_TOPIC_BYTES_MAX = 65_535


class _BrokerSection(Section):
    """How to reach a broker.

    Attributes:
        host: the broker's name or address.
        port: the broker's port. Default: 1883 without TLS, 8883 with it.
        tls: how to reach a broker with TLS.
        login: user and password.
    """

    host: str = Field(min_length=1, examples=["broker.example"])
    port: int | None = Field(default=None, ge=1, le=65535, examples=[8883])
    tls: TlsConfig | None = None
    login: LoginConfig | None = None

    @property
    def broker_port(self) -> int:
        """Return the port, or the default one."""
        if self.port is not None:
            return self.port
        return 1883 if self.tls is None else 8883


class MqttSourceConfig(_BrokerSection):
    """Messages of topics. They are in the journal before they are acknowledged to the broker.

    Attributes:
        topics: topic filters; a message must not match two of them.
        qos: the QoS of the subscription; with 0 the broker may lose messages.
        clients: how many connections share the subscription, for more throughput.
        format: the format of a message; ``raw`` puts it into the column ``_value`` (BINARY). ``_topic`` is filled too.
        journal: what was received and is not committed yet.
    """

    type: Literal["mqtt"]
    topics: Annotated[tuple[str, ...], Field(min_length=1, max_length=100)] = Field(examples=[["plant/+/temperature"]])
    qos: Literal[0, 1, 2] = 1
    clients: int = Field(default=1, ge=1, le=64, examples=[4])
    format: Literal["json", "raw"] = "json"
    journal: JournalConfig = JournalConfig()

    @field_validator("topics")
    @classmethod
    def _are_filters(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        findings = [
            Finding(key=(str(number),), what=what)
            for number, topic in enumerate(topics)
            if (what := _filter_problem(topic)) is not None
        ]
        for (_, one), (number, other) in combinations(enumerate(topics), 2):
            if not findings and filters_overlap(one, other):
                what = f'"{one}" and "{other}" both match some topics, whose messages would arrive twice; separate them'
                findings.append(Finding(key=(str(number),), what=what))
        refuse(findings)
        return topics


class MqttSinkConfig(_BrokerSection):
    """One message a result row, with a stable id as the user property ``spillway-id``: at least once.

    Attributes:
        topic: where results go.
        qos: the QoS with which they are published.
    """

    type: Literal["mqtt"]
    topic: str = Field(examples=["plant/alarms"])
    qos: Literal[1, 2] = 1

    @field_validator("topic")
    @classmethod
    def _is_no_filter(cls, topic: str) -> str:
        if any(char in topic for char in "+#"):
            raise ValueError(f'"{topic}" must be one topic to publish to, without + and #')
        problem = _filter_problem(topic)
        if problem is not None:
            raise ValueError(problem)
        return topic


def _filter_problem(topic: str) -> str | None:
    levels = topic.split("/")
    if not topic or "\0" in topic or len(topic.encode()) > _TOPIC_BYTES_MAX:
        return f"must have 1 to {_TOPIC_BYTES_MAX} bytes, none of them zero"
    if levels[0] in ("$share", "$queue"):
        return f'"{topic}" is a shared subscription already; give the filter alone: clients says how many share it'
    if any("#" in level and (level != "#" or n < len(levels) - 1) for n, level in enumerate(levels)):
        return f'"{topic}" is not right; # is a whole level, and the last one, as in plant/#'
    if any("+" in level and level != "+" for level in levels):
        return f'"{topic}" is not right; + is a whole level, as in plant/+/power'
    return None


def filters_overlap(one: str, other: str) -> bool:
    """Return whether a topic can match both filters."""
    first, second = one.split("/"), other.split("/")
    if any(a[0].startswith("$") and b[0] in ("+", "#") for a, b in ((first, second), (second, first))):
        return False  # a wildcard at the front matches no topic of the broker's own ($SYS)
    for a, b in zip(first, second, strict=False):
        if "#" in (a, b):
            return True
        if "+" not in (a, b) and a != b:
            return False
    longer = max(first, second, key=len)
    rest = longer[min(len(first), len(second)) :]
    return not rest or rest == ["#"]
