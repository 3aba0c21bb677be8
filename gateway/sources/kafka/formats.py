"""The format of a Kafka source's records, as decoders take it."""

from __future__ import annotations

from gateway.config.connectors.kafka import KafkaSourceConfig
from infra.messages import RecordFormat
from infra.rows.base import SourceError


def record_format(config: KafkaSourceConfig, *, strict: bool = False) -> RecordFormat:
    """Return the format of a source's records; reads the file of its Avro schema.

    Args:
        config: the source's.
        strict: see ``RecordFormat``.

    Raises:
        SourceError: that file cannot be read.
    """
    if config.avro_schema is None:
        return RecordFormat(kind=config.format, strict=strict)
    try:
        text = config.avro_schema.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SourceError(f"{config.avro_schema} is not a readable Avro schema: {error!r}") from error
    return RecordFormat(kind=config.format, avro_schema=text, avro_name=str(config.avro_schema), strict=strict)
