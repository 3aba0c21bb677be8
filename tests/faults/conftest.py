"""The size of the fault tests: short in ``make test``, full in ``make faults``."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.faults.figures import Figures, Scale


@pytest.fixture(scope="session")
def scale() -> Scale:
    """Short unless ``SPILLWAY_FAULTS`` is ``full``, or a number: as full, with at most so many of each fault.

    ``SPILLWAY_SEED`` repeats the same faults.
    """
    said = os.environ.get("SPILLWAY_FAULTS", "")
    seed = int(os.environ.get("SPILLWAY_SEED", "20261121"))
    return Scale(said == "full" or said.isdigit(), seed, int(said) if said.isdigit() else None)


@pytest.fixture(scope="session")
def figures(scale: Scale) -> Iterator[Figures]:
    """The measurements; they are stored when a run ends that injected every fault as often as it should be."""
    found = Figures()
    yield found
    if scale.full and scale.most is None:
        found.keep()
