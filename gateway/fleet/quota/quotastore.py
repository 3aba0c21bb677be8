"""A quota in an object store: each permit a record with versions, each portion of a day an object.

``quotas/<name>/vms/<permit>/<version>`` and ``quotas/<name>/days/<date>/<portion>``; ``terms`` beside the portions says
how many there are. An object of a day is never replaced, and never written again after it was deleted.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Final, TypeVar

import msgspec

from infra.objectstore.base import ConflictError, ObjectStore, StoreRefusedError
from infra.objectstore.versions import OvertakenError, Versions
from policies.money.ledger import DAY_S
from policies.quota.requests import (
    AgreeDay,
    Answer,
    ClaimDone,
    ClaimRead,
    DayRead,
    DayTerms,
    ForgetPortions,
    PermitsRead,
    ReadClaim,
    ReadDay,
    ReadPermits,
    Request,
    TakePortion,
    VmClaim,
    WriteClaim,
)

_TERMS: Final = "terms"
_BYTES_MAX: Final = 10_000
_FORGOTTEN: Final = 4
_KEPT: Final = 3
"""Versions of a permit: all are listed to see which permits are free."""
_Record = TypeVar("_Record", VmClaim, DayTerms)


class QuotaStore:
    """Carries out the requests of ``policies.quota``. Its method blocks.

    Args:
        store: the object store.
        name: of the quota.
    """

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store = store
        self._vms = f"quotas/{name}/vms/"
        self._days = f"quotas/{name}/days/"

    def perform(self, request: Request) -> Answer:
        """Carry out a request, and return its answer.

        Raises:
            StoreUnavailableError: its outcome is unknown: repeat it.
            StoreRefusedError: the store refuses until something is corrected.
        """
        match request:
            case ReadPermits():
                return self._permits()
            case ReadClaim():
                version = self._versions(request.permit).at(request.number)
                return ClaimRead(None if version is None else _decoded(version.data, VmClaim))
            case WriteClaim():
                return self._write(request)
            case ReadDay():
                return self._day(request.day)
            case AgreeDay():
                self._put(self._name(request.day, _TERMS), msgspec.json.encode(request.terms))
                return self._day(request.day)
            case TakePortion():
                name, data = self._name(request.day, f"{request.portion:05d}"), request.writer.encode()
                return ClaimDone(self._put(name, data) or self._content(name) == data)
            case ForgetPortions():
                for old in islice(self._store.list(self._name(request.day, "")), _FORGOTTEN):
                    self._store.delete(old)
                return ClaimDone(True)

    # ----------------------------------------------------------------------------------------------------------- VMs

    def _versions(self, permit: int) -> Versions:
        return Versions(self._store, f"{self._vms}{permit:04d}")

    def _permits(self) -> PermitsRead:
        newest: dict[int, int] = {}
        for name in self._store.list(self._vms):
            permit, _, number = name.removeprefix(self._vms).partition("/")
            if permit.isdigit() and number.isdigit():
                newest[int(permit)] = max(newest.get(int(permit), 0), int(number))
        return PermitsRead(newest)

    def _write(self, request: WriteClaim) -> ClaimDone:
        versions = self._versions(request.permit)
        try:
            versions.add(request.number, msgspec.json.encode(request.claim))
        except OvertakenError:
            return ClaimDone(False)
        # Numbers grow by one or by two.
        versions.prune(request.number, _KEPT)
        versions.prune(request.number - 1, _KEPT)
        return ClaimDone(True)

    # --------------------------------------------------------------------------------------------------------- money

    def _name(self, day: int, what: str) -> str:
        return f"{self._days}{datetime.fromtimestamp(day * DAY_S, UTC):%Y-%m-%d}/{what}"

    def _day(self, day: int) -> DayRead:
        terms = self._content(self._name(day, _TERMS))
        if terms is None:
            return DayRead(None)
        folder = self._name(day, "")
        names = (name.removeprefix(folder) for name in self._store.list(folder))
        return DayRead(_decoded(terms, DayTerms), frozenset(int(name) for name in names if name.isdigit()))

    def _content(self, name: str) -> bytes | None:
        found = self._store.get(name, bytes_max=_BYTES_MAX)
        return None if found is None else found.data

    def _put(self, name: str, data: bytes) -> bool:
        try:
            self._store.put_if_absent(name, data)
        except ConflictError:
            return False
        return True


def _decoded(data: bytes, kind: type[_Record]) -> _Record:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise StoreRefusedError(f"a record of the quota cannot be read ({error}): restore it") from error
