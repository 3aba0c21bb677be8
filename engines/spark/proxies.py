"""Objects of the JVM that Python has dropped.

The JVM keeps an object as long as Python has a proxy for it. A proxy on which a method was called is part of a
reference cycle, so only the garbage collector ends it; until then the JVM keeps, for example, a micro-batch's rows.
"""

from __future__ import annotations

import gc

from infra.loading import collect_seldom

_NEW_LEAST = 20


def settle() -> None:
    """Exempt what exists now from later collections, which then take less than a millisecond."""
    gc.collect()
    collect_seldom()


def free_dropped() -> None:
    """Let the JVM free what Python has dropped since the last call."""
    if sum(gc.get_count()) >= _NEW_LEAST:
        gc.collect()
