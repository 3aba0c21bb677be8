"""The config's sections about MQTT."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gateway.config.fields import Section
from gateway.config.journal import Journal
from gateway.config.security import Login, Tls


class MqttSource(Section):
    """Messages of topics, safe in the journal before the broker is told that they came.

    Attributes:
        host: the broker's.
        port: 1883 without TLS, 8883 with it.
        topics: topic filters.
        qos: what is asked of the broker; with 0 it may lose messages.
        clients: how many connections share the subscription, for more throughput.
        format: what a message is; ``raw`` puts it into the column ``_value`` (BINARY). ``_topic`` is filled too.
    """

    type: Literal["mqtt"]
    host: str = Field(min_length=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    topics: Annotated[tuple[str, ...], Field(min_length=1, max_length=100)]
    qos: Literal[0, 1, 2] = 1
    clients: int = Field(default=1, ge=1, le=64)
    format: Literal["json", "raw"] = "json"
    journal: Journal = Journal()
    tls: Tls | None = None
    login: Login | None = None


class MqttSink(Section):
    """One message a result row, with a stable id as the user property ``spillway-id``: at least once."""

    type: Literal["mqtt"]
    host: str = Field(min_length=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    topic: str = Field(min_length=1)
    qos: Literal[1, 2] = 1
    tls: Tls | None = None
    login: Login | None = None
