"""The garbage collector of a long-running process: off while code is loaded, and seldom afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Python's default is 700. Each record of a source is an object or two, none of them part of a cycle, so collections
# would take a third of the CPU time of reading (docs/decisions/0174).
NEW_OBJECTS_MOST: Final = 20_000


@contextmanager
def loading() -> Iterator[None]:
    """Switch the collector off while code is loaded, and then collect seldom.

    Collections while code is loaded take a tenth of a restart's CPU time.
    """
    gc.disable()
    try:
        yield
    finally:
        collect_seldom()
        gc.enable()


def collect_seldom() -> None:
    """Exempt what is loaded from later collections, and have few of those."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS_MOST)
