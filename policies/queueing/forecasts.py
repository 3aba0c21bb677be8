"""Short forecasts of a series of equally long time slices: naive and seasonal naive (section V-A).

A series has the shape (n,), oldest first; a forecast has the shape (ahead,), beginning with the next slice.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.arrays import Array, finite


def naive(series: npt.ArrayLike, ahead: int) -> Array:
    """Return the last value, repeated."""
    return np.full(_steps(ahead), _series(series, 1)[-1])


def seasonal_naive(series: npt.ArrayLike, ahead: int, season: int) -> Array:
    """Return the values of a season before.

    Args:
        series: at least one season long.
        ahead: how many slices to forecast.
        season: slices per season.
    """
    if season < 1:
        raise ValueError(f"a season of {season} slices makes no sense")
    return np.resize(_series(series, season)[-season:], _steps(ahead))


def _series(series: npt.ArrayLike, least: int) -> Array:
    values = finite("series", series, 1)
    if len(values) < least:
        raise ValueError(f"{len(values)} slices are too few to forecast from: {least} are needed")
    return values


def _steps(ahead: int) -> int:
    if ahead < 1:
        raise ValueError(f"a forecast of {ahead} slices makes no sense")
    return ahead
