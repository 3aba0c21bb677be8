"""Made-up trades for machines without real ones: prices wander, and now and then a large trade moves one.

Like real trades, several often come in the same millisecond, most of them are small, and few have 1,000 shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random

from engines.ticks.trades import Trade, numbered

_FIRST = datetime(2013, 10, 7, 13, 30, tzinfo=UTC)
_PRICE_CENTS = 18_000
_GAP_MS = 1_600
"""The mean time between two times at which there are trades, two or three each."""
_BURST = 0.6
"""How likely another trade of the same millisecond is."""
_LARGE = 1_000
_LARGE_PART = 0.01
_MOVES_PART = 0.2
"""The part of large trades after which the price jumps."""
_FALLS_BACK = 0.4


def generate_trades(count: int, seed: int, symbols: Sequence[str] = ("IBM", "SUN")) -> Iterator[Trade]:
    """Yield trades by time, and then what ends the last attempt to find a pattern; equal seeds give equal trades.

    Args:
        count: how many trades.
        seed: of the random numbers.
        symbols: of the stocks.
    """
    yield from numbered(_wander(count, Random(seed), symbols))  # noqa: S311  # no secret


def _wander(count: int, draw: Random, symbols: Sequence[str]) -> Iterator[Trade]:
    cents = dict.fromkeys(symbols, _PRICE_CENTS)
    jumps: dict[str, list[tuple[datetime, int]]] = {symbol: [] for symbol in symbols}
    at = _FIRST
    for _ in range(count):
        if draw.random() > _BURST:
            at += timedelta(milliseconds=1 + int(draw.expovariate(1 / _GAP_MS)))
        symbol = draw.choice(symbols)
        while jumps[symbol] and jumps[symbol][0][0] <= at:
            cents[symbol] += jumps[symbol].pop(0)[1]
        is_large = draw.random() < _LARGE_PART
        shares = _LARGE + 100 * int(draw.expovariate(0.2)) if is_large else draw.choice((1, 50, 100, 100, 100, 300))
        cents[symbol] += draw.choice((-1, 0, 0, 0, 1))
        yield Trade(number=0, at=at, symbol=symbol, price=cents[symbol] / 100, shares=shares)
        if is_large and not jumps[symbol] and draw.random() < _MOVES_PART:
            jumps[symbol] = _jump(at, cents[symbol], draw)


def _jump(at: datetime, cents: int, draw: Random) -> list[tuple[datetime, int]]:
    """Return by how much the price changes and when: up by about 1 %, and later down again, at times soon and far."""
    up = int(cents * draw.uniform(0.008, 0.015))
    rise = at + timedelta(seconds=draw.uniform(1, 70))
    soon = draw.random() < _FALLS_BACK
    fall = rise + timedelta(seconds=draw.uniform(1, 12) if soon else draw.uniform(30, 300))
    return [(rise, up), (fall, -up - draw.randint(0, 30))]
