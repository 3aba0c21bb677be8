"""The machine types (size and zone) in the order in which they are tried; failures are remembered over restarts.

A VM that never boots can cost a quarter of an hour. A gateway that restarts again and again for another reason would
pay for that each time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from infra.clouds.providers.account import Account
from infra.link.keys.secret_files import write_private

_LOG: Final = logging.getLogger(__name__)
_UNFIT_S: Final = 3600.0
"""An unusable machine type is tried last for this long: the fault may be fixed by then."""

Kind = tuple[str, str | None]
"""A size and a zone."""


class _Memory(msgspec.Struct, frozen=True):
    """The content of the file: the account's fingerprint, and (size, zone, seconds since 1970 of the failure)."""

    account: str
    unfit: list[tuple[str, str | None, float]]


class Kinds:
    """The machine types of an account.

    Args:
        account: the memory belongs to everything in it but sizes, zones and secrets: after a change, of the image for
            example, the memory is ignored.
        file: where the memory is kept; None: only in this object.
    """

    def __init__(self, account: Account, file: Path | None) -> None:
        self._kinds: Sequence[Kind] = [(size, zone) for size in account.sizes for zone in account.zones or (None,)]
        self._account = _fingerprint(account)
        self._file = file
        self._since_s = {} if file is None else self._read(file)

    def by_merit(self, wall_s: float) -> list[Kind]:
        """Return the types: the first size in every zone, then the second size, and so on.

        A type whose last VM was unusable comes last; of several such types, the one with the oldest failure comes
        first.

        Args:
            wall_s: seconds since 1970, as for the others.
        """
        # A failure in the future was recorded while the clock was wrong.
        self._since_s = {kind: at_s for kind, at_s in self._since_s.items() if 0 <= wall_s - at_s <= _UNFIT_S}
        return sorted(self._kinds, key=lambda kind: self._since_s.get(kind, -math.inf))

    def was_unfit(self, kind: Kind, wall_s: float) -> None:
        """Note that a machine of this kind was unusable."""
        self._since_s[kind] = wall_s
        _LOG.warning("the next launches try %s last, for %g s", " in ".join(filter(None, kind)), _UNFIT_S)
        self._write()

    def booted(self, kind: Kind) -> None:
        """Note that a machine of this kind booted."""
        if self._since_s.pop(kind, None) is not None:
            self._write()

    def _read(self, file: Path) -> dict[Kind, float]:
        try:
            memory = msgspec.json.decode(file.read_bytes(), type=_Memory)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            _LOG.warning("the record of unusable machine types cannot be read and is ignored: %s: %s", file, error)
            return {}
        if memory.account != self._account:
            return {}
        return {(size, zone): at_s for size, zone, at_s in memory.unfit if (size, zone) in self._kinds}

    def _write(self) -> None:
        if self._file is None:
            return
        unfit = [(size, zone, at_s) for (size, zone), at_s in self._since_s.items()]
        try:
            write_private(self._file, msgspec.json.encode(_Memory(self._account, unfit)))
        except OSError as error:
            _LOG.warning("the record of unusable machine types cannot be written: %s", error)


def _fingerprint(account: Account) -> str:
    about = dataclasses.replace(account, key="", secret="", token=None, sizes=(), zones=())
    return hashlib.sha256(repr(about).encode()).hexdigest()
