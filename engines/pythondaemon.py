"""The process that forks Spark's Python workers: PySpark's own, whose workers stop looking at what they have imported.

PySpark's workers collect garbage after each task. Going through all objects of all imported modules takes some 40 ms
of a core, most of what a small run costs. What is alive after a worker's first tasks stays, and is not looked at again.
"""

from __future__ import annotations

import gc
from typing import Any

from pyspark import daemon

_OBJECTS_MOST = 10_000
"""Fewer than this are gone through in no time; PySpark and PyArrow alone have ten times as many."""

_FREEZES_MOST = 4
"""A later task may import more. No more than this, lest a query's own objects pile up that come and go."""

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


if __name__ == "__main__":
    daemon.worker = work
    daemon.manager()
