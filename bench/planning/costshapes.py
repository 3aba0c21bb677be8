"""The cost of a window with so many engines: Figures 10 to 13 (Zacheilas, IV)."""

from __future__ import annotations

import numpy as np

from planning.document import table
from policies.money.billing import BillingTerms
from policies.planning.stategraph import CostSettings, Horizon, costs


def report() -> str:
    """Return Figures 10 to 13: what a window costs with 2, 4, 6 and 8 engines, by what misses and engines cost.

    Four windows of 60 s, in which 500, 1,500, 3,000 and 4,500 events come; an engine does 600 in a window.
    """
    arriving, engines, states = np.array([500.0, 1500.0, 3000.0, 4500.0]), (2, 4, 6, 8), 8
    shape = (len(arriving), states)
    horizon = Horizon(
        window_s=60.0,
        input_rate=arriving / 60.0,
        input_std=0.05 * arriving / 60.0,
        busy_s=np.full(shape, 0.1),
        busy_std_s=np.zeros(shape),
    )
    prices: tuple[tuple[str, float, float], ...] = (
        ("10", 0.001, 1500.0),
        ("11", 10.0, 1500.0),
        ("12", 1.0, 0.0),
        ("13", 1.0, 100_000.0),
    )
    rows = []
    for figure, miss_usd, engine_usd in prices:
        terms = BillingTerms(60.0, 60.0, 60.0 * engine_usd, 0.0)
        found = costs(horizon, CostSettings(miss_usd=miss_usd, rebalance_usd=0.0, terms=terms), [])
        for window, events in enumerate(arriving):
            usd = [float(found.arcs[window, each - 1, each - 1]) for each in engines]
            cheapest = engines[int(np.argmin(np.round(usd, 6)))]
            named = (figure, f"{miss_usd:g}", f"{engine_usd:g}", f"{events:g}")
            rows.append((*named, *(f"{each:,.2f}" for each in usd), cheapest))
    header = ("Figure", "MC", "EC", "events", *(f"{each} engines" for each in engines), "cheapest")
    return table(header, rows)
