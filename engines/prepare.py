"""Writes the class archive that halves the work of a Spark start, once for each machine: ``spillway prepare``."""

from __future__ import annotations

import tempfile
from pathlib import Path

from engines.spark.classarchive import archive, make_options
from engines.spark.session import SessionError, build_session, stop_session
from engines.warmup import warm_up
from infra.clock import SystemClock

_WRITING_S = 300.0


def prepare() -> Path:
    """Start Spark, run a query as an engine host does, and write the classes that were loaded to the archive.

    Needs a process that has not started Spark yet. Two processes may do this at the same time.

    Returns:
        The archive.

    Raises:
        SessionError: Spark cannot be started, or its JVM wrote no archive.
        OSError: the folder for the archive cannot be written.
    """
    kept = archive()
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        written = Path(folder) / "classes.jsa"
        session = build_session("local[1]", Path(folder) / "work", 1, jvm_options=make_options(written))
        try:
            warm_up(session, SystemClock())
        finally:
            stop_session(session, within_s=_WRITING_S)
        if not written.is_file():
            raise SessionError("the JVM wrote no archive of its classes; Spark starts without one, as before")
        written.replace(kept)
    return kept
