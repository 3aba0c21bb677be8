"""The process that forks Spark's Python workers: PySpark's own, with less to do for each worker and each task.

A Python function that raises ends its worker, and a new one takes 300 to 500 ms to import what it needs. This process
has imported that before it forks; a worker is then ready in 30 ms. The only thread that the imports start is one of
jemalloc, which knows of forks.

PySpark's workers collect garbage after each task. Going through all objects of all imported modules takes some 40 ms
of a core, most of what a small run costs. What was imported before the fork, and what is alive after a worker's first
tasks, stays and is not looked at again.
"""

from __future__ import annotations

import gc
import importlib
import sys
import zipimport
from typing import Any

from pyspark import daemon

_OBJECTS_MOST = 10_000
"""Fewer than this are gone through in no time; PySpark and PyArrow alone have ten times as many."""

_FREEZES_MOST = 4
"""A later task may import more. No more than this, lest a query's own objects pile up that come and go."""

_IMPORTS = ("pyspark.worker", "pyarrow", "pandas")

_pyspark_work = daemon.worker
_freezes = 0


def work(sock: Any, authenticated: bool) -> int:
    """Do a task as PySpark's worker does, and keep what it has imported from the next collection.

    Args:
        sock: the connection to Spark.
        authenticated: whether it has been authenticated.

    Returns:
        The task's exit code.
    """
    global _freezes  # the worker is a process of its own
    code: int = _pyspark_work(sock, authenticated)
    if _freezes < _FREEZES_MOST and len(gc.get_objects()) > _OBJECTS_MOST:
        gc.collect()
        gc.freeze()
        _freezes += 1
    return code


def prepare() -> None:
    """Import what every worker needs, and keep the collector from it."""
    for name in _IMPORTS:
        importlib.import_module(name)
    # A worker begins by having each of these read its whole archive again: 120 ms. They are made anew when asked for.
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    prepare()
    daemon.worker = work
    daemon.manager()
