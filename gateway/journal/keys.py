"""The remembered idempotency keys: in memory, and on disk for longer than the records that came with them."""

from __future__ import annotations

import logging
import math
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from infra.statefiles import StateError, sync_folder, write_atomically

_LOG = logging.getLogger(__name__)

# At about 250 bytes of memory each.
KEYS_MAX: Final = 300_000
_SUFFIX = ".keys"
_CRC_BYTES = 4
_TELL_EACH_S = 3600.0


class SeenKey(msgspec.Struct, frozen=True, array_like=True):
    """The key of an append.

    Attributes:
        key: the key.
        digest: distinguishes the append from another one with the same key.
        count: the number of its records.
        wall_s: when, seconds since 1970.
    """

    key: str
    digest: bytes
    count: int
    wall_s: float


class SeenKeys:
    """The keys of a journal.

    A key is kept for ``keep_s``, and at most ``keys_max`` are kept: the oldest are dropped first, with a log line. The
    keys of a full segment go to a separate file, ``<serial>.keys``, which outlives the segment.

    Args:
        folder: the journal's.
        keep_s: how long a key is remembered.
        keys_max: the limit of remembered keys.
    """

    def __init__(self, folder: Path, keep_s: float, keys_max: int = KEYS_MAX) -> None:
        self._folder = folder
        self._keep_s = keep_s
        self._keys_max = keys_max
        self._seen: dict[str, SeenKey] = {}
        self._newest_s: dict[int, float] = {}
        self._told_s = -math.inf

    def __len__(self) -> int:
        """Return the number of remembered keys."""
        return len(self._seen)

    def __iter__(self) -> Iterator[SeenKey]:
        """Iterate over the remembered keys, oldest first."""
        return iter(self._seen.values())

    def oldest_wall_s(self, now_wall_s: float) -> float:
        """Return the time before which no key is remembered."""
        first_kept_s = next(iter(self)).wall_s if self._seen else now_wall_s
        return max(now_wall_s - self._keep_s, first_kept_s)

    def find(self, key: str, now_wall_s: float) -> SeenKey | None:
        """Return the append with ``key``, unless it is too old."""
        seen = self._seen.get(key)
        return seen if seen is not None and now_wall_s - seen.wall_s < self._keep_s else None

    def add(self, seen: SeenKey) -> None:
        """Remember a key, and drop keys that are too old or too many."""
        self._seen.pop(seen.key, None)
        self._seen[seen.key] = seen
        while self._seen:
            oldest = next(iter(self._seen.values()))
            old_s = seen.wall_s - oldest.wall_s
            if old_s < self._keep_s:
                if len(self._seen) <= self._keys_max:
                    return
                self._tell(old_s, seen.wall_s)
            del self._seen[oldest.key]

    def _tell(self, old_s: float, now_wall_s: float) -> None:
        """Log, once an hour, that keys are remembered for a shorter time than configured."""
        if now_wall_s - self._told_s < _TELL_EACH_S:
            return
        self._told_s = now_wall_s
        _LOG.warning(
            "%s: an Idempotency-Key is now remembered for %.0f s instead of remember_keys = %.0f s, since there are "
            "more than %d; a request that is repeated later is accepted twice: send more events in each request",
            self._folder,
            old_s,
            self._keep_s,
            self._keys_max,
        )

    def save(self, serial: int, keys: Iterable[SeenKey]) -> None:
        """Write the keys of a segment to their file.

        Raises:
            OSError: they were not written.
        """
        kept = list(keys)
        data = msgspec.msgpack.encode(kept)
        write_atomically(self._path(serial), zlib.crc32(data).to_bytes(_CRC_BYTES, "little") + data)
        self._newest_s[serial] = max((seen.wall_s for seen in kept), default=0.0)

    def load(self) -> set[int]:
        """Load the keys of all files, oldest first; return the serials of their segments.

        Raises:
            StateError: a file is damaged.
        """
        for path in sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda path: int(path.stem)):
            data = path.read_bytes()
            if len(data) < _CRC_BYTES or int.from_bytes(data[:_CRC_BYTES], "little") != zlib.crc32(data[_CRC_BYTES:]):
                raise StateError(
                    f"{path} is damaged: restore it from a backup, or remove it; without it requests that are sent "
                    "again with a key from that time are accepted again"
                )
            keys = msgspec.msgpack.decode(data[_CRC_BYTES:], type=list[SeenKey])
            self._newest_s[int(path.stem)] = max((seen.wall_s for seen in keys), default=0.0)
            for seen in keys:
                self.add(seen)
        return set(self._newest_s)

    def forget(self, now_wall_s: float, oldest_serial: int) -> None:
        """Remove the files of segments before ``oldest_serial`` whose keys are all dropped.

        Raises:
            OSError: some files remain.
        """
        limit_s = self.oldest_wall_s(now_wall_s)
        gone = [n for n, newest_s in self._newest_s.items() if n < oldest_serial and newest_s < limit_s]
        for serial in gone:
            self._path(serial).unlink(missing_ok=True)
            del self._newest_s[serial]
        if gone:
            sync_folder(self._folder)

    def _path(self, serial: int) -> Path:
        return self._folder / f"{serial:08d}{_SUFFIX}"
