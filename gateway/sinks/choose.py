"""Creates the sink of a query from the config."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from gateway.config.models import (
    FileSinkConfig,
    HttpSinkConfig,
    KafkaSinkConfig,
    MqttSinkConfig,
    S3SinkConfig,
    SinkConfig,
)
from gateway.connectors.objectstores import make_store
from gateway.sinks.base import Handover, Sink
from gateway.sinks.httpsink import HttpSink
from gateway.sinks.marked import MarkedSink
from gateway.sinks.parts.filesink import FileSink
from gateway.sinks.progress import ProgressFile
from gateway.sinks.threaded import ThreadedSink
from infra.clock import Clock
from infra.messages import APPEND, OutputMode


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink may need to know about its query.

    Attributes:
        query: its name.
        owner: identity of the state that numbers the seqs; the same after a restart, and for each owner of a fleet.
        epoch: counts the gateways that opened that state; a gateway with a lower one is a zombie.
        ordered: results are released in order, and gaps must be visible in the output.
        folder: the query's part of the state_dir, for a sink that cannot keep its progress itself.
        clock: time.
        offsets_group: the source's consumer group, if a Kafka sink's transactions can move its offsets.
        handover: what a Kafka or S3 sink stores for the next owner of the fleet; None without a fleet.
        output: which results the query emits; a reader of rows that replace others is told so.
    """

    query: str
    owner: str
    epoch: int
    ordered: bool
    folder: Path
    clock: Clock
    offsets_group: str | None = None
    handover: Handover | None = None
    output: OutputMode = APPEND


def make_sink(config: SinkConfig, context: SinkContext) -> Sink:
    """Return the sink of ``config``, not opened yet."""
    sink, mode = _sink_of_rows(config, context), context.output.mode
    # The key of a Kafka record says what it replaces.
    return sink if mode == "append" or isinstance(config, KafkaSinkConfig) else MarkedSink(sink, mode)


def _sink_of_rows(config: SinkConfig, context: SinkContext) -> Sink:
    match config:
        case FileSinkConfig():
            return ThreadedSink(
                lambda: FileSink(config.path, owner=context.owner, format=config.format, ordered=context.ordered)
            )
        case KafkaSinkConfig():
            from gateway.sinks.kafka import kafkasink  # a slow import that few queries need

            return kafkasink.KafkaSink(
                config,
                query=context.query,
                owner=context.owner,
                epoch=context.epoch,
                clock=context.clock,
                offsets_group=context.offsets_group,
                handover=context.handover,
                replaces_by=None if context.output.mode == "append" else context.output.key,
            )
        case MqttSinkConfig():
            from gateway.sinks.mqttsink import MqttSink

            progress = ProgressFile(context.folder / "progress.json", context.owner)
            return MqttSink(config, progress, query=context.query, owner=context.owner)
        case HttpSinkConfig():
            progress = ProgressFile(context.folder / "progress.json", context.owner)
            return HttpSink(config, progress, owner=context.owner, clock=context.clock)
        case S3SinkConfig():
            from gateway.sinks.parts import s3sink

            writer = secrets.token_hex(8)
            return ThreadedSink(
                lambda: s3sink.S3Sink(
                    lambda: make_store(config),
                    owner=context.owner,
                    epoch=context.epoch,
                    writer=writer,
                    format=config.format,
                    ordered=context.ordered,
                    handover=context.handover,
                )
            )
