"""Where a gateway keeps something of a query in its fleet's object store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from infra.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class FleetPlace:
    """A folder in the fleet's object store, and who writes there.

    Attributes:
        store: the fleet's object store.
        folder: in the store, for this alone.
        place: names this gateway's state_dir.
        epoch: with which this gateway opened the query; higher than that of every earlier owner.
        why_not_write: returns why nothing may be written now (the gateway does not own the fleet), else empty.
    """

    store: ObjectStore
    folder: str
    place: str
    epoch: int
    why_not_write: Callable[[], str]
