"""The settings of one query's exchange."""

from __future__ import annotations

from dataclasses import dataclass

from policies.failures.overdue import Patience
from policies.signals import HOME


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeSettings:
    """The settings of one query.

    Attributes:
        patience: how long to wait for an answer.
        home_only: the query is stateful: its runs go to ``place`` only, in order, and an overdue run is not dispatched
            elsewhere; instead the query is opened again.
        place: the lane of a stateful query, until `PlaceSet` names another one.
        ordered: False releases results on completion.
        flush_s: how long a missing run holds up the results after it; None for ever (strict order).
        held_bytes_max: how many bytes of results may wait for an earlier run or for the sink before dispatch stops.
    """

    patience: Patience
    home_only: bool = False
    place: str = HOME
    ordered: bool = True
    flush_s: float | None
    held_bytes_max: int
