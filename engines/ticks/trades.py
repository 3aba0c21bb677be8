"""Trades of a stock as one stream by time: a reader of files with one day of one stock each."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO
from zoneinfo import ZoneInfo

import msgspec

SCHEMA_DDL = "number BIGINT, at TIMESTAMP, symbol STRING, price DOUBLE, shares BIGINT"

_NAME = re.compile(r"(\d{8})_([a-z.]+)_trade\.csv(?:\.gz)?")
_EXCHANGE = ZoneInfo("America/New_York")
_DOLLAR = 10_000
"""Prices are whole numbers: so many are a dollar."""
_CALM = timedelta(hours=1)


class Trade(msgspec.Struct, frozen=True, kw_only=True):
    """A trade, in the columns of ``SCHEMA_DDL``.

    Attributes:
        number: its place in the stream, from 0.
        at: when, UTC.
        symbol: of the stock; empty in an event that is no trade and only makes time pass.
        price: in dollars, of one share.
        shares: how many were sold.
    """

    number: int
    at: datetime
    symbol: str
    price: float
    shares: int


def read_trades(paths: Iterable[Path]) -> Iterator[Trade]:
    """Yield the trades of some days by time, and then what ends the last attempt to find a pattern.

    Trades that are marked as suspicious are left out.

    Args:
        paths: files such as ``20131007_ibm_trade.csv.gz``. A line has the milliseconds since midnight in New York, the
            price in 1/10,000 dollars, the shares, the exchange, the condition of the sale, and 1 if it is suspicious.

    Raises:
        ValueError: a line is no trade, or a name has no day and stock; the message names file and line.
    """
    yield from numbered(each for path in paths for each in _day(path))


def numbered(trades: Iterable[Trade]) -> Iterator[Trade]:
    """Yield trades by time with their numbers, and then an event an hour later, which is no trade."""
    found = sorted(trades, key=lambda each: each.at)
    if found:
        found.append(Trade(number=0, at=found[-1].at + _CALM, symbol="", price=0.0, shares=0))
    for number, each in enumerate(found):
        yield msgspec.structs.replace(each, number=number)


def _day(path: Path) -> Iterator[Trade]:
    named = _NAME.fullmatch(path.name)
    if named is None:
        raise ValueError(f"{path}: the name of a file of trades is like 20131007_ibm_trade.csv.gz")
    midnight = datetime.strptime(named[1], "%Y%m%d").replace(tzinfo=_EXCHANGE)
    with _opened(path) as lines:
        for line, fields in enumerate(csv.reader(lines), 1):
            try:
                ms, price, shares, _exchange, _condition, suspicious = fields
                at = midnight + timedelta(milliseconds=int(ms))
                trade = Trade(
                    number=0,
                    at=at.astimezone(UTC),
                    symbol=named[2].upper(),
                    price=int(price) / _DOLLAR,
                    shares=int(shares),
                )
            except ValueError as error:
                raise ValueError(f"{path}:{line}: not a trade: {error}") from error
            if suspicious == "0":
                yield trade


def _opened(path: Path) -> TextIO:
    return gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="")
