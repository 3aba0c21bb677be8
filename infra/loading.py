"""Loading code without looking for garbage in it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Load code within; neither then nor later is it gone through for garbage: that is a tenth of a restart's work."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
