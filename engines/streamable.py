"""Checks whether Spark would run a query over a stream, without starting it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

from engines.query.conditions import scala_items
from engines.query.known import KnownQuery, RefusedError
from engines.query.reasons import why
from engines.spark.scratch import scratch_folder
from engines.spark.session import sibling
from engines.spark.tablefiles import TABLES
from engines.streaming.stream import check_streaming


def check_streams(query: KnownQuery) -> tuple[str, ...]:
    """Plan a query over a stream of files that is never started, and let Spark check it for its output mode.

    Returns:
        The files and folders of this machine that it reads besides the events and its declared tables.

    Raises:
        RefusedError: Spark would refuse it.
    """
    session = sibling(query.base)
    folder = scratch_folder("stream")
    try:
        frame = query.of_stream(session.readStream.schema(query.run_columns).parquet(folder.as_uri()))
        check_streaming(frame, query)
        jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - what judges a plan is nowhere in the public API
        spark: Any = jvm.org.apache.spark.sql
        plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
        mode = getattr(spark.streaming.OutputMode, query.spec.output.mode.capitalize())()
        spark.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
        return tuple(dict.fromkeys(_local_files(plan)))
    except RefusedError:
        raise
    except Exception as error:  # the user's function and Spark may raise anything
        raise RefusedError(f"query {query.spec.query}: {why(error)}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _local_files(plan: Any) -> Iterator[str]:
    for leaf in scala_items(plan.collectLeaves()):
        if leaf.getClass().getSimpleName() == "LogicalRelation" and hasattr(leaf.relation(), "location"):
            paths = (path.toUri() for path in scala_items(leaf.relation().location().rootPaths()))
            files = (str(uri.getPath()) for uri in paths if uri.getScheme() == "file")
            yield from (path for path in files if f"/{TABLES}/" not in path)
