"""Lanes of the operator of first-story detection, in one process: what is told where, the time for it, and moved state.

The work of a lane is measured by the time of the CPU. The lanes of a window count as working side by side: the window
takes as long as its busiest lane. State that moves is turned into bytes and back, and no lane works meanwhile.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from state.balancing import Stretch
from state.divisions import Division

from engines.stories.nearest import StoryLane
from engines.stories.words import TextVector
from policies.arrays import IntArray
from policies.keys.imbalance import imb_score


@dataclass(frozen=True, slots=True)
class Window(Stretch):
    """The texts between two decisions.

    Attributes:
        texts: their vectors in order.
    """

    texts: Sequence[TextVector]


@dataclass(slots=True)
class Told:
    """What lanes did with a stream.

    Attributes:
        stories: the places in the stream of the first stories.
        windows: of each the exponent, the RSTD of its texts in percent, how many there are, and how long it took.
        keys: how many keys each rebalancing moved, with or without texts.
        texts: how many texts it moved with them.
    """

    stories: list[int] = field(default_factory=list)
    windows: list[tuple[float, float, int, float]] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)

    def rstd(self, exponent: float) -> list[float]:
        """Return the RSTD of the windows with an exponent, in percent."""
        return [score for found, score, _, _ in self.windows if found == exponent]

    def rate_per_s(self, exponent: float | None = None) -> float:
        """Return texts per second, of all windows or of those with an exponent."""
        chosen = [each for each in self.windows if exponent in (None, each[0])]
        return sum(texts for *_, texts, _ in chosen) / sum(took_s for *_, took_s in chosen)


def tell(division: Division, lanes: int, stream: Sequence[Window]) -> Told:
    """Deal the texts of all windows, with a decision after each one."""
    places = [StoryLane() for _ in range(lanes)]
    told, begun = Told(), 0
    for window in stream:
        lane_of_text = division.divide(window.keys)
        took_s = max(_work(place, window, begun, lane_of_text == lane, told) for lane, place in enumerate(places))
        before = division.lane_of.copy()
        if division.decide():
            took_s += _move(places, before, division.lane_of, told)
        score = imb_score(np.bincount(lane_of_text, minlength=lanes).astype(np.float64))
        told.windows.append((window.exponent, score, len(window.keys), took_s))
        begun += len(window.keys)
    told.stories.sort()
    return told


def _work(place: StoryLane, window: Window, begun: int, chosen: IntArray, told: Told) -> float:
    """Let a lane tell its texts of a window; return its seconds of CPU."""
    mine = [(at, int(window.keys[at]), window.texts[at]) for at in np.flatnonzero(chosen).tolist()]
    started_s = time.thread_time()
    told.stories += [begun + at for at, key, text in mine if place.tell(key, text)]
    return time.thread_time() - started_s


def _move(places: Sequence[StoryLane], before: IntArray, after: IntArray, told: Told) -> float:
    """Move the state of all keys that have another lane; return the seconds of CPU."""
    started_s = time.thread_time()
    texts = 0
    moved = np.flatnonzero(before != after)
    for source, target in sorted(set(zip(before[moved].tolist(), after[moved].tolist(), strict=True))):
        keys = moved[(before[moved] == source) & (after[moved] == target)]
        state = pickle.loads(pickle.dumps(places[source].give(keys.tolist())))
        places[target].take(state)
        texts += sum(map(len, state.values()))
    told.keys.append(len(moved))
    told.texts.append(texts)
    return time.thread_time() - started_s
