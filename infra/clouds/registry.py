"""The folder with the records of process VMs, so that the next gateway finds, adopts or terminates them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final, Literal

import msgspec

from infra.clouds.base import Boot, Node
from infra.link.keys.secret_files import write_private

_LOG_TAIL_BYTES: Final = 2000


class VmRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One process VM, or one warm host.

    Attributes:
        id: also the name of its working folder.
        place: counts from 0 and decides the CPUs; a new VM gets the lowest free one.
        stage: ``pool`` is a warm host that is not assigned; the other two are stages of a VM.
        pid: 0 until it is known.
        mark: start mark of that process; empty until it is known.
    """

    id: str
    name: str
    host: str
    place: int
    stage: Literal["starting", "running", "pool"]
    created_at_s: float
    tags: dict[str, str] = {}
    boot: Boot = "real"
    pid: int = 0
    mark: str = ""
    address: str = ""
    port: int = 0

    def node(self, *, runs: bool) -> Node:
        """Return the gateway's view of it."""
        return Node(
            id=self.id,
            name=self.name,
            host=self.host,
            state="gone" if not runs else "starting" if self.stage == "starting" else "running",
            address=self.address,
            port=self.port,
            created_at_s=self.created_at_s,
            tags=dict(self.tags),
            boot=self.boot,
        )


class Registry:
    """Records and working folders below one folder; each write is atomic and durable."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder.absolute()

    def all(self) -> list[VmRecord]:
        """Return the records, oldest first."""
        found = [record for path in self._folder.glob("*.json") if (record := _read(path)) is not None]
        return sorted(found, key=lambda record: (record.created_at_s, record.id))

    def get(self, record_id: str) -> VmRecord | None:
        """Return one record."""
        return _read(self._file(record_id))

    def put(self, record: VmRecord) -> None:
        """Write or replace a record."""
        write_private(self._file(record.id), msgspec.json.encode(record))

    def forget(self, record_id: str) -> None:
        """Remove a record, then its working folder."""
        self._file(record_id).unlink(missing_ok=True)
        shutil.rmtree(self.workdir(record_id), ignore_errors=True)

    def workdir(self, record_id: str) -> Path:
        """Return the host's working folder."""
        return self._folder / record_id

    def user_data_file(self, record_id: str) -> Path:
        """Return where the host finds its user data."""
        return self.workdir(record_id) / "user-data.json"

    def log_file(self, record_id: str) -> Path:
        """Return where the host's output goes."""
        return self.workdir(record_id) / "worker.log"

    def log_tail(self, record_id: str) -> str:
        """Return the end of the host's output."""
        try:
            return self.log_file(record_id).read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
        except FileNotFoundError:
            return ""

    def _file(self, record_id: str) -> Path:
        return self._folder / f"{record_id}.json"


def _read(path: Path) -> VmRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=VmRecord)
    except FileNotFoundError:
        return None
