"""Objects in a folder: for one machine, for a shared file system, and for tests."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from infra.objectstore.base import ConflictError, Stored, StoreRefusedError, StoreUnavailableError, checked_name

_LOCK: Final = ".lock"
_TEMPORARY: Final = ".tmp-"


class FolderStore:
    """An ``ObjectStore`` in a folder, which is created; each write is atomic and durable.

    A lock on the folder serialises writes, so a conditional write sees the current state. The system releases the lock
    when its holder dies.

    Args:
        folder: used by this store only; names become files below it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with self._failing():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _LOCK).touch()
        with self._turn():
            # Nobody writes now: these files were left by writers that were killed.
            for leftover in folder.rglob(f"{_TEMPORARY}*"):
                leftover.unlink()

    def __str__(self) -> str:
        return str(self._folder)

    def get(self, name: str, *, bytes_max: int) -> Stored | None:
        """See ``ObjectStore.get``."""
        with self._failing():
            try:
                with self._path(name).open("rb") as file:
                    data = file.read(bytes_max + 1)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None
        if len(data) > bytes_max:
            raise StoreRefusedError(f"{self._path(name)} is larger than {bytes_max} bytes: another program wrote it")
        return Stored(data, _etag(data))

    def put(self, name: str, data: bytes) -> str:
        """See ``ObjectStore.put``."""
        with self._turn():
            return self._write(name, data)

    def put_if_absent(self, name: str, data: bytes) -> str:
        """See ``ObjectStore.put_if_absent``."""
        with self._turn():
            if self._path(name).exists():
                raise ConflictError(f"{self._path(name)}: another writer was first")
            return self._write(name, data)

    def put_if_match(self, name: str, data: bytes, etag: str) -> str:
        """See ``ObjectStore.put_if_match``."""
        with self._turn():
            path = self._path(name)
            if not path.is_file() or _etag(path.read_bytes()) != etag:
                raise ConflictError(f"{path}: another writer was first")
            return self._write(name, data)

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """See ``ObjectStore.list``."""
        with self._failing():
            below = self._folder / prefix.rpartition("/")[0]
            names = [str(path.relative_to(self._folder)) for path in below.rglob("[!.]*") if path.is_file()]
        yield from sorted(name for name in names if name.startswith(prefix) and name > after)

    def delete(self, name: str) -> None:
        """See ``ObjectStore.delete``."""
        with self._turn():
            self._path(name).unlink(missing_ok=True)
            if self._path(name).parent.is_dir():
                _sync(self._path(name).parent)

    def _path(self, name: str) -> Path:
        return self._folder / checked_name(name)

    def _write(self, name: str, data: bytes) -> str:
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        for folder in [path.parent, *path.parent.parents]:
            _sync(folder)
            if folder == self._folder:
                break
        return _etag(data)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the folder's lock."""
        with self._failing(), (self._folder / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Translate errors of the file system into the store's."""
        try:
            yield
        except (PermissionError, FileExistsError, NotADirectoryError) as error:
            text = "check that this user may read and write there, and that it is a folder"
            raise StoreRefusedError(f"{error.filename or self._folder}: {error.strerror}: {text}") from error
        except OSError as error:
            raise StoreUnavailableError(f"{error.filename or self._folder}: {error.strerror}") from error


def _etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
