"""Whether the forecast horizon should have a selection's length besides a VM's boot; virtual time, as in degree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from planning.document import table

from patterns.degree import (
    BOOT_S,
    LIMIT_EVENTS,
    LOW_PER_S,
    PROBABILITY,
    STEADY_PER_S,
    WAY_S,
    play,
    replayed,
    steady,
)
from policies.arrays import Array
from policies.planning.queueing import QueueingOptions

LASTS_S = 1_800.0


def report(_data: Path | None) -> str:
    """Play a constant load and one that grows tenfold within five minutes, with both horizons; return the table."""
    naive = QueueingOptions(window_s=40.0, buffer_limit=LIMIT_EVENTS, probability=PROBABILITY)
    learned = replace(naive, window_s=20.0, forecast="gp")
    rows = []
    for title, rate in (("constant", steady), ("tenfold within 5 min, and back", quick)):
        load = replayed(rate, LASTS_S)
        for forecast, options in (("naive", naive), ("Gaussian process", learned)):
            for horizon, ahead_s in (("boot", BOOT_S), ("boot and a selection's length", BOOT_S + WAY_S)):
                found = play(load, LASTS_S, replace(options, ahead_s=ahead_s))
                rows.append((title, forecast, horizon, f"{found.kept:.1%}", f"{found.vms:.2f}"))
                print(rows[-1], flush=True)
    return table(("load", "forecast", "horizon", "limit kept", "VMs on average"), rows)


def quick(at_s: Array) -> Array:
    """Return vehicles per second: a rise, a plateau, a fall, of five minutes each, between quiet times."""
    parts, rates = [0, 1 / 6, 1 / 3, 1 / 2, 2 / 3, 1], [LOW_PER_S, LOW_PER_S, STEADY_PER_S, STEADY_PER_S]
    rate: Array = np.interp(at_s / LASTS_S, parts, [*rates, LOW_PER_S, LOW_PER_S])
    return rate
