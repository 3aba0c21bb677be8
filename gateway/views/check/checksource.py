"""Says where the events of a query come from, and who else reads there."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.config.connectors.s3 import shared_prefix
from gateway.config.models import (
    HttpSourceConfig,
    KafkaSourceConfig,
    MqttSourceConfig,
    QueryConfig,
    QuerySourceConfig,
    S3SourceConfig,
    SourceConfig,
)
from gateway.config.words import units


def source_text(source: SourceConfig) -> str:
    """Return where events come from, and when."""
    match source:
        case QuerySourceConfig():
            return f"results of {source.name}"
        case KafkaSourceConfig():
            return f"Kafka topics {', '.join(source.topics)} at {source.brokers}"
        case MqttSourceConfig():
            return f"MQTT topics {', '.join(source.topics)} at {source.host}"
        case HttpSourceConfig():
            return f"POST to {source.listen}{source.path}"
        case S3SourceConfig(bucket=bucket, prefix=prefix):
            return f"s3://{bucket}/{prefix}, its objects" + (
                " and those that appear later" if source.follow else ", as fast as possible"
            )
    replay = source.replay
    if source.follow:
        return f"{source.path}, its files and those that appear later"
    if replay is None:
        return f"{source.path}, as fast as possible"
    pace = "as fast as possible"
    if replay.rate_per_s is not None:
        pace = f"at {units.RATE.format(replay.rate_per_s)}"
    elif replay.profile is not None:
        pace = f"by a profile of {len(replay.profile)} steps"
    elif replay.times is not None:
        pace = f"at the times in column {replay.times}"
    if replay.speed != 1.0:
        pace += f", {replay.speed:g} times as fast"
    return f"{source.path}, {pace}, {replay.loops} time{'s' if replay.loops > 1 else ''}"


def other_readers_text(queries: Mapping[str, QueryConfig], name: str) -> str:
    """Return which other queries read objects of a query's ``s3`` sources, and what follows; empty if none does."""
    mine = [source for source in queries[name].inputs.values() if isinstance(source, S3SourceConfig)]
    others = [
        f"{other} (s3://{source.bucket}/{source.prefix})"
        for other, query in queries.items()
        for source in query.inputs.values()
        if other != name and isinstance(source, S3SourceConfig)
        if any(shared_prefix(each, source) for each in mine)
    ]
    if not others:
        return ""
    return (
        f"{', '.join(others)}: each query processes every object below its own prefix. Remove an object only when all "
        "of them have processed it"
    )
