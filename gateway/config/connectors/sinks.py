"""The config's sections about the destination of a query's results."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gateway.config.connectors.http import HttpSinkConfig
from gateway.config.connectors.kafka import KafkaSinkConfig
from gateway.config.connectors.mqtt import MqttSinkConfig
from gateway.config.connectors.s3 import S3SinkConfig
from gateway.config.words.fields import AnyPath, Section


class FileSinkConfig(Section):
    """Results in parts, in a folder of its own.

    Attributes:
        path: the folder, which no other query writes to.
        format: the format of the parts.
    """

    type: Literal["file"]
    path: AnyPath = Field(examples=["out/"])
    format: Literal["jsonl", "parquet"] = "jsonl"


SinkConfig = Annotated[
    FileSinkConfig | KafkaSinkConfig | MqttSinkConfig | HttpSinkConfig | S3SinkConfig, Field(discriminator="type")
]
