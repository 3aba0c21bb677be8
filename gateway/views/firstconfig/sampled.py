"""Finds the columns of a source's events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from os.path import normpath
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from gateway.config.models import KafkaSourceConfig
from gateway.config.sections.extras import why_missing
from gateway.config.words.fields import ROW_SUFFIXES
from gateway.sources.files.listed import is_candidate
from gateway.views.firstconfig.inferring import MAIL, RECORDS_MOST, InferError, Inferred, infer_file, infer_json
from infra.rows.base import SourceError, SourceUnavailableError

_BYTES_MOST: Final = 16_000_000
_RAW: Final = pa.schema([("_value", pa.binary())])


def infer(section: Mapping[str, Any], folder: Path, sample: Path | None) -> Inferred:
    """Return the columns of a source's events.

    Args:
        section: of the source.
        folder: of the config.
        sample: a file with some of the events, instead of the source.

    Raises:
        InferError: they cannot be found; the message says what to do.
    """
    if sample is not None:
        return infer_file(sample)
    match section["type"]:
        case "file":
            # The folder of the config may not exist yet: the path must not lead through it.
            return _of_path(Path(normpath(Path(folder, section["path"]))))
        case "kafka":
            return _of_topic(section)
        case kind:
            raise InferError(f"no event of a source of type {kind} can be read before a gateway runs")


def _of_path(path: Path) -> Inferred:
    if not path.is_dir():
        return infer_file(path)
    names = sorted(each.name for each in path.iterdir() if is_candidate(each.name) and not each.is_dir())
    rows = [name for name in names if name.endswith(ROW_SUFFIXES)]
    if rows:
        return infer_file(path / rows[0])
    if any((path / part).is_dir() for part in ("cur", "new")):
        return MAIL
    raise InferError(f"{path} holds no file of rows (it may be one of {', '.join(ROW_SUFFIXES)})")


def _of_topic(section: Mapping[str, Any]) -> Inferred:
    if missing := why_missing("kafka sources", "kafka"):
        raise InferError(missing)
    from gateway.sources.kafka.sampled import sample_topics

    raw = KafkaSourceConfig.model_validate({**section, "format": "raw"})
    try:
        chunk = asyncio.run(sample_topics(raw, _RAW, RECORDS_MOST, _BYTES_MOST, strict=False))
    except (SourceError, SourceUnavailableError) as error:
        raise InferError(str(error)) from error
    values = [value for value in chunk.batch.column(0).to_pylist() if value is not None]
    if not values:
        raise InferError(f"the topic {', '.join(raw.topics)} has no records yet")
    return infer_json(values)
