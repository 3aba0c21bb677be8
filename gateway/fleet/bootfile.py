"""The boots that were seen, on disk: a gateway that is started again expects what VMs really needed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import msgspec

from infra.statefiles import write_atomically
from infra.threads import run_to_end

_LOG = logging.getLogger(__name__)


class _Boots(msgspec.Struct, frozen=True):
    """The file: the configured time, and the boots that were seen, the oldest first."""

    configured_s: float
    boots_s: tuple[Annotated[float, msgspec.Meta(ge=0)], ...]


class BootFile:
    """Keeps the latest boots. They are only experience: without the file, they are learned again.

    Args:
        path: the file.
        configured_s: the configured time. Boots that were seen with another one are forgotten: who changes it knows
            something new, as after a change of the image.
    """

    def __init__(self, path: Path, configured_s: float) -> None:
        self._path = path
        self._configured_s = configured_s
        self._saved: tuple[float, ...] = ()

    def read(self) -> tuple[float, ...]:
        """Return the boots that an earlier gateway saw; none if it cannot be known."""
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=_Boots)
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError) as error:
            _LOG.warning("%s cannot be read (%s): boots are learned again, from the configured time", self._path, error)
            return ()
        self._saved = found.boots_s if found.configured_s == self._configured_s else ()
        return self._saved

    async def save(self, boots_s: tuple[float, ...]) -> None:
        """Write the boots if they have changed; if the disk fails, the next boot tries again."""
        if boots_s == self._saved:
            return
        self._saved = boots_s
        data = msgspec.json.encode(_Boots(self._configured_s, boots_s))
        try:
            await run_to_end(lambda: write_atomically(self._path, data))
        except OSError as error:
            _LOG.warning("%s cannot be written (%s): the next start does not know these boots", self._path, error)
