"""The correct matches of the pattern over trades: for each large trade, all that comes later is looked at by hand.

It shares no code with the pattern's operator but the type of a trade.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from engines.ticks.trades import Trade


def rises_of(trades: Sequence[Trade], rise: float) -> list[dict[str, Any]]:
    """Return the matches by the number of the large trade, in the columns of the query without ``selection``.

    A large trade has at least 1,000 shares. Its match is the first later trade of its stock, within 60 s, with a
    price of at least ``rise`` times the first one; if no trade of the stock in the 10 s after it is below the first
    price.
    """
    by_stock: dict[str, list[Trade]] = {}
    for each in trades:
        by_stock.setdefault(each.symbol, []).append(each)
    matches = [found for stock in by_stock.values() for at in range(len(stock)) for found in match_of(stock, at, rise)]
    return sorted(matches, key=lambda found: int(found["large"]))


def match_of(stock: list[Trade], at: int, rise: float) -> list[dict[str, Any]]:
    """Return the match that begins with a trade of a stock, if there is one."""
    first = stock[at]
    if first.shares < 1_000:
        return []
    risen = at + 1
    while risen < len(stock) and not stock[risen].price >= rise * first.price:
        if stock[risen].at - first.at > timedelta(seconds=60):
            return []
        risen += 1
    if risen == len(stock) or stock[risen].at - first.at > timedelta(seconds=60):
        return []
    for later in stock[risen + 1 :]:
        if later.at - stock[risen].at > timedelta(seconds=10):
            break
        if later.price < first.price:
            return []
    second = stock[risen]
    return [{"large": first.number, "rise": second.number, "before": first.price, "after": second.price}]
