"""The process that forks Spark's Python workers: PySpark's own, with less work for each worker and each task.

A Python function that raises ends its worker, and a new worker takes 300 to 500 ms for its imports. This process has
imported them before it forks, so a worker is ready in 30 ms. The only thread that these imports start belongs to
jemalloc, which handles forks.

PySpark's workers collect garbage after each task. A pass over all objects of all imported modules takes some 40 ms of a
core, most of the cost of a small run. So objects that were imported before the fork, and those alive after a worker's
first tasks, are exempted from collection.
"""

from __future__ import annotations

import gc
import importlib
import sys
import zipimport
from typing import Any

from pyspark import daemon

_OBJECTS_MOST = 10_000
"""A collection of fewer objects takes no time; PySpark and PyArrow alone have ten times as many."""

_FREEZES_MOST = 4
"""A later task may import more. The limit keeps a query's own short-lived objects from accumulating."""

_IMPORTS = ("pyspark.worker", "pyarrow", "pandas")

_pyspark_work = daemon.worker
_freezes = 0


def work(sock: Any, authenticated: bool) -> int:
    """Do a task as PySpark's worker does, and exempt its imports from the next collection.

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
    """Import what every worker needs, and exempt it from collection."""
    for name in _IMPORTS:
        importlib.import_module(name)
    # At its start a worker makes each of these read its whole archive again: 120 ms. They are recreated on demand.
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    prepare()
    daemon.worker = work
    daemon.manager()
