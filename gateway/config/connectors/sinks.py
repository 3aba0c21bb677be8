"""The config's sections about where a query's results go."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gateway.config.connectors.http import HttpSink
from gateway.config.connectors.kafka import KafkaSink
from gateway.config.connectors.mqtt import MqttSink
from gateway.config.connectors.s3 import S3Sink
from gateway.config.words.fields import AnyPath, Section


class FileSink(Section):
    """Results in parts, in a folder of its own."""

    type: Literal["file"]
    path: AnyPath
    format: Literal["jsonl", "parquet"] = "jsonl"


Sink = Annotated[FileSink | KafkaSink | MqttSink | HttpSink | S3Sink, Field(discriminator="type")]
