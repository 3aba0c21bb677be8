"""Chooses the reader of a file."""

from __future__ import annotations

import pyarrow as pa

from infra.files.arrowfile import open_arrow
from infra.files.base import FilePlace, FileReader
from infra.files.csvfile import CsvReader
from infra.files.lines import JsonLinesReader
from infra.files.parquetfile import open_parquet
from infra.rows.base import SourceError
from infra.rows.jsonlines import LineDecoder


def open_by_name(path: FilePlace, schema: pa.Schema, *, strict: bool) -> FileReader:
    """Open a file of rows by its suffix; see ``gateway.config.words.fields.ROW_SUFFIXES``.

    Raises:
        SourceError: it cannot be read, or does not fit ``schema``.
    """
    kind = path.name.removesuffix(".gz").removesuffix(".zst").rpartition(".")[2]
    try:
        match kind:
            case "jsonl":
                return JsonLinesReader(path, LineDecoder(schema, strict=strict))
            case "csv":
                return CsvReader(path, schema, strict=strict)
            case "parquet":
                return open_parquet(path, schema, strict=strict)
            case "arrow" | "arrows":
                return open_arrow(path, schema, strict=strict)
            case _:
                raise SourceError(f"{path} has an unsupported type")
    except FileNotFoundError as error:
        raise SourceError(f"{path} no longer exists: restore the file") from error
