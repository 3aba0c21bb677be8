"""Keys over five lanes: KG, PKG, LPTF and DLB under a load whose hot keys change (Dynamic Load Balancing, section 5).

This is the paper's second experiment with shorter phases. Keys are drawn from a Zipf distribution, whose exponent
alternates between 0.2 and 1.5 each minute; each phase has other hot keys. Each key is a key group of its own. A
decision follows each window of 5 s, and what it moves is in its new lane when the next window begins. No engine runs:
the events of each window are only divided, and the RSTD is imbScore (equation 2) of the lanes' events in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
from planning.document import table

from policies.arrays import Array, IntArray
from policies.keys.imbalance import imb_score
from state.divisions import KEYS, LANES, Division, divisions, loads_of

SEED = 1
EVENTS_PER_S = 1200
DECISION_S = 5
PHASE_S = 60
EXPONENTS = (0.2, 1.5) * 5
"""One for each phase."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The events between two decisions: their keys in order, and the exponent of the phase."""

    exponent: float
    keys: IntArray


@dataclass(slots=True)
class Outcome:
    """RSTD in percent after each decision, by exponent, and the part of all keys that each rebalancing moved."""

    scores: dict[float, list[float]] = field(default_factory=lambda: {each: [] for each in EXPONENTS})
    moved: list[float] = field(default_factory=list)

    def cells(self) -> tuple[str, ...]:
        """Return the columns of the table that are measured."""
        moved = f"{100 * fmean(self.moved):.1f} %, {100 * max(self.moved):.1f} %" if self.moved else "none"
        return (*map(mean_cell, self.scores.values()), str(len(self.moved)), moved)


def draw(rng: np.random.Generator) -> Iterator[Stretch]:
    """Draw the load of all phases."""
    for exponent in EXPONENTS:
        chances = np.arange(1, KEYS + 1) ** -exponent
        order = rng.permutation(KEYS)
        for _ in range(PHASE_S // DECISION_S):
            ranks = rng.choice(KEYS, EVENTS_PER_S * DECISION_S, p=chances / chances.sum())
            yield Stretch(exponent, np.asarray(order[ranks], dtype=np.intp))


def rstd(lane_of_event: IntArray) -> float:
    """Return imbScore in percent of events that are divided so."""
    return imb_score(np.bincount(lane_of_event, minlength=len(LANES)).astype(np.float64))


def least_possible(loads: Array) -> float:
    """Return the RSTD in percent that no division of whole keys falls below.

    A key with more than an equal part of what is left has a lane for itself. The others are spread equally, as if they
    could be divided.
    """
    alone: list[float] = []
    left = float(loads.sum())
    for heaviest in -np.sort(-loads)[: len(LANES) - 1]:
        if heaviest * (len(LANES) - len(alone)) <= left:
            break
        alone.append(float(heaviest))
        left -= float(heaviest)
    spread = len(LANES) - len(alone)
    return imb_score(np.array(alone + [left / spread] * spread))


def observe(division: Division, load: Iterable[Stretch]) -> Outcome:
    """Divide all events, with a decision after each stretch."""
    outcome = Outcome()
    for stretch in load:
        outcome.scores[stretch.exponent].append(rstd(division.divide(stretch.keys)))
        if moved := division.decide():
            outcome.moved.append(moved / KEYS)
    return outcome


def mean_cell(scores: Sequence[float]) -> str:
    """Return the mean as the table has it."""
    return f"{fmean(scores):.1f} %"


def report() -> str:
    """Return the table of docs/results/state.md."""
    load = list(draw(np.random.default_rng(SEED)))
    rows = [(name, paper, *observe(division, load).cells()) for name, paper, division in divisions()]
    least = Outcome()
    for stretch in load:
        least.scores[stretch.exponent].append(least_possible(loads_of(stretch.keys)))
    rows.append(("least possible with whole keys", "", *map(mean_cell, least.scores.values()), "", ""))
    header = ["division", "the paper", "RSTD at 0.2", "RSTD at 1.5", "times rebalanced", "keys moved (mean, most)"]
    return table(header, rows, text_columns=2)
