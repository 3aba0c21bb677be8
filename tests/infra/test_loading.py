"""The garbage collector while code is loaded, and afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from infra.loading import NEW_OBJECTS_MOST, loading


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)
    assert gc.isenabled()


def test_nothing_is_collected_while_code_is_loaded_and_little_afterwards() -> None:
    frozen = gc.get_freeze_count()
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen
    assert gc.get_threshold()[0] == NEW_OBJECTS_MOST


def test_code_that_cannot_be_loaded_leaves_the_collector_on() -> None:
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()
