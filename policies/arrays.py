"""The array types of the numeric policies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
"""64-bit floats; docstrings give the shape."""

BoolArray = npt.NDArray[np.bool_]
"""Truth values."""

IntArray = npt.NDArray[np.intp]
"""Indices and counts."""


def finite(name: str, values: npt.ArrayLike, dimensions: int) -> Array:
    """Return ``values`` as an array with this number of dimensions.

    Raises:
        ValueError: the number of dimensions differs, or a value is not finite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions:
        raise ValueError(f"{name} must have {dimensions} dimensions, not {array.ndim} (shape {array.shape})")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds {np.count_nonzero(~np.isfinite(array))} values that are not finite")
    return array
