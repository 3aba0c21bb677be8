"""Spark settings: those that Spillway owns, and those that must be equal at every site; and kinds of master.

Does not import Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TIMEZONE: Final = "UTC"
DRIVER_MEMORY: Final = "spark.driver.memory"
# Offset and commit logs on a local or memory file system: 14 ms a batch instead of 58.
_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

SQL: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Single rows must run as tasks, and not be evaluated while planning.
    "spark.sql.execution.arrow.localRelationThreshold": "0b",
    "spark.sql.session.timeZone": TIMEZONE,
    # Adaptive execution computes shuffles before a micro-batch is passed on: a row that fails there would end the
    # query.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
    # Results belong to seq numbers; a micro-batch without events would have results without seq.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
}
_ANSWERS = "the answers at home and in the cloud must be equal, and are compared under {value}"
_OWNED: Final = {
    **dict.fromkeys(SQL, "an engine host relies on {value}"),
    "spark.sql.ansi.enabled": _ANSWERS,
    "spark.sql.session.timeZone": _ANSWERS,
    "spark.master": "write private.spark.master instead",
    DRIVER_MEMORY: "write private.spark.memory instead",
    "spark.submit.deployMode": "the driver always runs in the engine host",
    "spark.driver.extraJavaOptions": "it sets where an engine host logs; use spark.driver.defaultJavaOptions instead",
    "spark.local.dir": "each engine host has a folder of its own",
    "spark.sql.warehouse.dir": "each engine host has a folder of its own",
    "spark.executor.killOnFatalError.depth": "a row that needs too much memory must fail alone, and not end the host",
    "spark.scheduler.mode": "the queries of an engine host take turns by it",
    "spark.python.daemon.module": "an engine host starts Python workers with its own program",
    "spark.python.unix.domain.socket.enabled": "an engine host keeps these sockets in a folder of its own",
    "spark.python.unix.domain.socket.dir": "an engine host keeps these sockets in a folder of its own",
}


def is_local(master: str) -> bool:
    """Return whether driver and executors of ``master`` are one process on this machine."""
    return master == "local" or master.startswith("local[")


def why_owned(name: str) -> str:
    """Return why a user may not change a setting; empty if the user may."""
    return _OWNED.get(name, "").format(value=f"{SQL.get(name)!r}")


def equal_everywhere(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that can change an answer, and so must be equal on every host."""
    return {name: value for name, value in conf.items() if name.startswith("spark.sql.")}
