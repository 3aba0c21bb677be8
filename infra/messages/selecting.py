"""How the events of a query become selections, and the pattern that it looks for in each of them."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

SELECTION: Final = "selection"
"""The column by which a query tells the selections of its events apart: their numbers, in the order of opening."""
SELECTIONS: Final = "_selections"
"""The last column of the runs of a query with selections: number and length of the one that begins with this row."""
POSITION: Final = "_position"
"""The column of the events of a pattern with their order."""

Operator = Literal["sequence", "conjunction", "disjunction", "aperiodic", "periodic"]
Times = Literal["one", "many", "none"]


class PatternStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a pattern.

    Attributes:
        name: by which conditions and results name its event.
        when: the condition (Spark SQL) on its event; it may read the events of earlier steps by their names.
        times: whether it is one event, as many as there are but at least one, or none: then no event may meet it.
        for_ms: of a last step with ``none``: only events that are at most so much later than the step before count.
    """

    name: str
    when: str
    times: Times = "one"
    for_ms: int = 0


class Pattern(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pattern (Mayer et al., Table I).

    Attributes:
        operator: how the steps belong together.
        steps: in their order; of ``aperiodic`` from, each and until, of ``periodic`` from and until.
        every_ms: of ``periodic``.
        within_ms: at most so much later than the first event; 0: no such limit.
    """

    operator: Operator
    steps: tuple[PatternStep, ...]
    every_ms: int = 0
    within_ms: int = 0


class SelectionRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which event opens a selection, and which closes it (Mayer et al., section IV). What is 0 does not count.

    Attributes:
        column: the TIMESTAMP column with the stream's time; empty if no time counts.
        each_ms: the first event of each such stretch of the stream's time opens a selection.
        each_events: each so-manieth event opens one.
        after_ms: an event that comes more than this after the opening one closes it, and is no part of it.
        events: the so-manieth event of a selection closes it.
        most_events: a selection has at most so many events; then it is closed, whatever the others say.
        most_open: at most so many selections may be open; of more, those that opened first are dropped.
        opens_when: each event that meets this condition (Spark SQL) opens one; empty if none is given.
        closes_when: an event after the opening one that meets this condition closes it, and is part of it.
        closes_same: only if it has the same value in this column as the opening event; empty if any event closes it.
        disjoint: no selection opens while another one is open.
        pattern: what is looked for in each selection; then its steps say which event opens one.
    """

    column: str
    each_ms: int
    each_events: int
    after_ms: int
    events: int
    most_events: int
    most_open: int
    opens_when: str = ""
    closes_when: str = ""
    closes_same: str = ""
    disjoint: bool = False
    pattern: Pattern | None = None
