"""Objects of a store as files that can be read anywhere: what is read is asked for, and nothing else."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

from infra.messages import BucketPlace
from infra.objectstore.base import ForeignObjects, ListedObject

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


@dataclass(frozen=True)
class ObjectAt:
    """A ``FilePlace``: an object, which must be the one that was listed.

    Attributes:
        objects: that it is among.
        listed: the object.
    """

    objects: ForeignObjects
    listed: ListedObject

    @property
    def name(self) -> str:
        """See ``FilePlace.name``."""
        return PurePosixPath(self.listed.name).name

    @property
    def suffix(self) -> str:
        """See ``FilePlace.suffix``."""
        return PurePosixPath(self.listed.name).suffix

    def open(self, mode: Literal["rb"]) -> BinaryIO:  # noqa: ARG002
        """See ``FilePlace.open``; it is asked for when it is read, with the errors of ``ForeignObjects.pieces``."""
        return cast("BinaryIO", _Ranged(self))

    def __str__(self) -> str:
        return f"{self.objects}{self.listed.name}"


class _Ranged(io.RawIOBase):
    """Each read is a request: readers ask for blocks."""

    def __init__(self, place: ObjectAt) -> None:
        self._place = place
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._place.listed.size_bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, target: WriteableBuffer) -> int:
        view = memoryview(target).cast("B")
        end = min(self._at + len(view), self._place.listed.size_bytes)
        count = 0
        if end > self._at:
            for piece in self._place.objects.pieces(self._place.listed, start=self._at, end=end):
                view[count : count + len(piece)] = piece
                count += len(piece)
        self._at += count
        return count


def objects_of(place: BucketPlace) -> ForeignObjects:
    """Return the objects below a prefix.

    Raises:
        ImportError: the client of S3 is missing.
        StoreRefusedError: they can never be read with these settings.
    """
    from infra.objectstore.s3 import S3Store  # a slow import that few need

    return S3Store(place.bucket, prefix=place.prefix, endpoint=place.endpoint, region=place.region)
