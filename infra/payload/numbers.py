"""Whole numbers in few bytes: offsets from the least, or from the least difference; and back from untrusted bytes.

Numbers begin with one byte: the width of an offset in bytes (0, 1, 2, 4 or 8), plus 16 if the offsets are those of
differences. Then come the first number (only with differences), the least, and the offsets, all lowest bytes first. A
single number is one byte, its length, and so many bytes. Sums wrap around at 64 bits on both sides, so nothing
overflows.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from infra.payload.errors import PayloadError

Int64Array: TypeAlias = npt.NDArray[np.int64]
_Offsets: TypeAlias = npt.NDArray[np.uint64]

_DIFFERENCES: Final = 16
_WIDTHS: Final = (0, 1, 2, 4, 8)
_UNSIGNED: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _width(offsets: _Offsets) -> int:
    most = int(offsets.max()) if len(offsets) else 0
    return next(width for width in _WIDTHS if most < 1 << 8 * width)


def _above(values: Int64Array) -> tuple[int, _Offsets]:
    """Return the least value, and how far each is above it."""
    least = int(values.min()) if len(values) else 0
    return least, values.view(np.uint64) - np.uint64(least % (1 << 64))


def put_count(parts: list[bytes], value: int) -> None:
    """Append a single number."""
    size = (value.bit_length() + 8) // 8
    parts.append(bytes([size]) + value.to_bytes(size, "little", signed=True))


def put_numbers(parts: list[bytes], values: Int64Array, narrower_than: int = 9) -> bool:
    """Append numbers, if each takes fewer bytes than that; the reader must know how many they are."""
    least, offsets = _above(values)
    width = _width(offsets)
    if width:
        least_step, steps = _above(values[1:] - values[:-1])
        step_width = _width(steps)
        if step_width < min(width, narrower_than):
            parts.append(bytes([_DIFFERENCES + step_width]))
            put_count(parts, int(values[0]))
            put_count(parts, least_step)
            _put_offsets(parts, steps, step_width)
            return True
    if width >= narrower_than:
        return False
    parts.append(bytes([width]))
    put_count(parts, least)
    _put_offsets(parts, offsets, width)
    return True


def _put_offsets(parts: list[bytes], offsets: _Offsets, width: int) -> None:
    if width == 1:
        parts.append(offsets.astype(np.uint8).tobytes())
    elif width:
        parts.append(offsets.astype(_UNSIGNED[width]).view(np.uint8).reshape(-1, width).T.tobytes())


class Reader:
    """Takes a body apart.

    Raises:
        PayloadError: the body is shorter, or longer, than what is read; each method may.
    """

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def take(self, size: int) -> memoryview:
        """Return the next bytes."""
        if size > len(self._body) - self._at:
            raise PayloadError(f"the body of {len(self._body)} bytes ends too early")
        self._at += size
        return self._body[self._at - size : self._at]

    def byte(self) -> int:
        """Return the next byte."""
        return int(self.take(1)[0])

    def rest(self) -> memoryview:
        """Return everything that is left."""
        return self.take(len(self._body) - self._at)

    def end(self) -> None:
        """Check that nothing is left."""
        if self._at != len(self._body):
            raise PayloadError(f"the body has {len(self._body) - self._at} bytes too many")

    def single(self) -> int:
        """Return a single number."""
        size = self.byte()
        if size > 9:
            raise PayloadError(f"a number of {size} bytes")
        return int.from_bytes(self.take(size), "little", signed=True)

    def count(self, most: int) -> int:
        """Return a single number from 0 to ``most``."""
        found = self.single()
        if not 0 <= found <= most:
            raise PayloadError(f"{found} is not a count from 0 to {most}")
        return found

    def numbers(self, count: int) -> Int64Array:
        """Return so many numbers; the caller has counted the 8 bytes that each of them takes."""
        head = self.byte()
        width = head % _DIFFERENCES
        if head not in (width, _DIFFERENCES + width) or width not in _WIDTHS:
            raise PayloadError(f"numbers of an unknown kind: {head}")
        if head == width:
            least = self._base()
            return (self._offsets(count, width) + least).view(np.int64)
        values = np.empty(count, np.uint64)
        values[:1] = self._base()
        least_step = self._base()
        values[1:] = self._offsets(max(0, count - 1), width)
        values[1:] += least_step
        return np.cumsum(values, dtype=np.uint64).view(np.int64)

    def _base(self) -> np.uint64:
        return np.uint64(self.single() % (1 << 64))

    def _offsets(self, count: int, width: int) -> _Offsets:
        if not width:
            return np.zeros(count, np.uint64)
        if width == 1:
            return np.frombuffer(self.take(count), np.uint8).astype(np.uint64)
        planes = np.frombuffer(self.take(count * width), np.uint8).reshape(width, count)
        return np.ascontiguousarray(planes.T).view(_UNSIGNED[width]).reshape(count).astype(np.uint64)
