"""Reads tables of databases with a Spark of its own, and writes each to one Parquet file.

The gateway runs it for a moment, as ``python -m engines.databases.reading``: a driver that hangs or crashes harms no
query. Rows are sorted, so that the same rows give the same file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from engines.databases.request import ANSWER, DatabaseTable, ReadTables, TablesRead
from engines.query.reasons import why
from engines.spark.session import build_session, stop_session

ROWS_MOST: Final = 10_000_000
_FETCHED_ROWS: Final = 10_000
_CAUSES_MOST: Final = 20
_NO_DRIVER: Final = ("No suitable driver", "ClassNotFoundException")


class UnreadableError(Exception):
    """A table has more rows than a static table may have."""


def write_table(session: SparkSession, table: DatabaseTable, folder: Path, rows_most: int = ROWS_MOST) -> Path:
    """Read a table and write it to ``folder/<name>.parquet``. Blocks.

    Raises:
        PySparkException: the database or its driver fails.
        UnreadableError: it has too many rows.
    """
    rows = _rows(session, table).limit(rows_most + 1).coalesce(1)
    order = [field.name for field in rows.schema if _has_order(field.dataType)]
    ordered = rows.sortWithinPartitions(*(rows[name] for name in order)) if order else rows
    written = folder / f"{table.name}.spark"
    ordered.write.parquet(written.as_uri())
    file = folder / f"{table.name}.parquet"
    next(written.glob("part-*.parquet")).rename(file)
    shutil.rmtree(written)
    if pq.read_metadata(file).num_rows > rows_most:
        raise UnreadableError(
            f"it has more than {rows_most:,} rows; let its query select fewer, or let a stream deliver them"
        )
    return file


def _rows(session: SparkSession, table: DatabaseTable) -> DataFrame:
    given = {"user": table.user, "password": table.password, "driver": table.driver}
    what = {"query": table.query} if table.query else {"dbtable": table.table}
    options = {**what, **{name: value for name, value in given.items() if value}}
    return (
        session.read.format("jdbc")
        .option("url", table.url)
        .option("fetchsize", _FETCHED_ROWS)
        .options(**options)
        .load()
    )


def _has_order(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _has_order(kind.elementType)
        case StructType():
            return all(_has_order(field.dataType) for field in kind)
    return not isinstance(kind, (MapType, VariantType))


def read_all(request: ReadTables) -> TablesRead:
    """Read all tables that are asked for. Blocks."""
    folder = Path(request.folder)
    try:
        session = build_session("local[1]", folder / "work", 1, conf=request.conf)
    except Exception as error:  # Spark may raise anything, and so may the user's settings
        return TablesRead(reason=why(error))
    try:
        for table in request.tables:
            try:
                write_table(session, table, folder)
            except Exception as error:  # drivers may raise anything
                return TablesRead(failed=table.name, reason=_explained(error))
    finally:
        stop_session(session)
    return TablesRead()


def _explained(error: Exception) -> str:
    reason, cause = why(error), _first_cause(error)
    if cause and cause not in reason:
        reason = f"{reason}: {cause}"
    if any(known in reason for known in _NO_DRIVER):
        return f"{reason}; name the driver's jar in private.spark.conf (spark.jars or spark.jars.packages)"
    return reason


def _first_cause(error: Exception) -> str:
    """Return what the driver said, which Spark's own message may lack; empty if no Java code failed."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CAUSES_MOST):
        if java is None or java.getCause() is None:
            break
        java = java.getCause()
    return "" if java is None else str(java.getMessage() or "")


def _answer(folder: str, said: TablesRead) -> None:
    new = Path(folder, f".{ANSWER}")
    new.write_bytes(msgspec.json.encode(said))
    new.rename(Path(folder, ANSWER))


def _give_up(request: ReadTables) -> None:
    _answer(request.folder, TablesRead(reason=f"the database did not answer within {request.within_s:g} s"))
    os._exit(1)  # the JVM ends with its parent, also while it waits for the database


def main() -> None:
    """Do what the request on the input says."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ReadTables)
    with Path(request.lock).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        timer = threading.Timer(request.within_s, partial(_give_up, request))
        timer.daemon = True
        timer.start()
        said = read_all(request)
        timer.cancel()
        _answer(request.folder, said)


if __name__ == "__main__":
    main()
