"""Spark's checkpoint folders of a stateful query: one for each start of a driver; and its progress.

A JVM may outlive its host by seconds and still write. So a new start never uses the folder of the previous one, but a
copy of it.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

_COPYING = "copying-"
_SCHEMAS = "_stateSchema"


class CheckpointError(Exception):
    """A checkpoint cannot be read; the message says what to do."""


@dataclass(frozen=True)
class ResumePoint:
    """Where a stateful query continues.

    Attributes:
        resume_seq: the first seq that its state does not hold.
        resume_end_seq: the end of the micro-batch that was planned but not committed, which will run again with exactly
            these limits; ``resume_seq`` if there is none.
    """

    resume_seq: int = 0
    resume_end_seq: int = 0


def new_start(base: Path) -> Path:
    """Create the folder for this start: a copy of the newest one, which stays unchanged; delete older ones.

    State schemas of an older folder stay while they are in use: Spark stores their full paths, and stores new paths
    only with the first batch of a start. A start that is killed early never commits one.
    """
    make(base)
    for left in base.glob(f"{_COPYING}*"):
        shutil.rmtree(left)
    starts = sorted(int(folder.name) for folder in base.iterdir() if folder.name.isdecimal())
    new = base / str(starts[-1] + 1 if starts else 1)
    copy = base / f"{_COPYING}{new.name}"
    if starts:
        _copy(base / str(starts[-1]), copy)
    else:
        copy.mkdir()
    copy.rename(new)
    needed = _starts_named_in(new)
    for old in starts[:-1]:
        if old in needed:
            _leave_schemas(base / str(old))
        else:
            shutil.rmtree(base / str(old))
    return new


def make(base: Path) -> None:
    """Create the folder of a query's starts.

    Raises:
        CheckpointError: the folder that it is to be in does not exist.
    """
    try:
        base.mkdir(exist_ok=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"the folder {base.parent} does not exist: create it, or mount it") from error


def temporary(base: Path, purpose: str) -> Path:
    """Return a path for a folder; the caller creates and removes it, or else the next start removes it."""
    return base / f"{_COPYING}{purpose}-{uuid.uuid4().hex[:8]}"


def copy_for_trial(folder: Path) -> Path:
    """Copy the folder of a start whose stream has ended; the caller removes the copy, or else the next start does."""
    copy = temporary(folder.parent, folder.name)
    _copy(folder, copy)
    return copy


def _starts_named_in(folder: Path) -> set[int]:
    """Return the starts whose state schemas the next batch of a checkpoint may read."""
    committed = _batches(folder / "commits")
    last = committed[-1] if committed else -1
    named: set[int] = set()
    for log in folder.glob("state/*/_metadata/v2"):
        batches = _batches(log)
        before = [batch for batch in batches if batch <= last]
        for batch in [*before[-1:], *(batch for batch in batches if batch > last)]:
            text = (log / str(batch)).read_text(errors="replace")
            named.update(map(int, re.findall(rf"/{re.escape(folder.parent.name)}/(\d+)/state/", text)))
    return named


def _leave_schemas(folder: Path) -> None:
    for entry in [*folder.iterdir(), *folder.glob("state/*/*")]:
        if entry.name in ("state", _SCHEMAS):
            continue
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def progress_of(folder: Path, begin_seq: int = 0) -> ResumePoint:
    """Read where a checkpoint's query continues.

    Args:
        folder: of one start.
        begin_seq: where a query begins that has committed nothing.

    Raises:
        CheckpointError: its offset log is not from this query.
    """
    offsets, commits = _batches(folder / "offsets"), _batches(folder / "commits")
    if not offsets:
        return ResumePoint(begin_seq, begin_seq)
    done = _end_of(folder, commits[-1]) if commits else begin_seq
    planned = [batch for batch in offsets if not commits or batch > commits[-1]]
    return ResumePoint(done, _end_of(folder, planned[0]) if planned else done)


def _copy(source: Path, target: Path) -> None:
    # Commits first: everything that they refer to was written before them, even if the JVM still writes.
    target.mkdir()
    for name in ("commits", "offsets"):
        if (source / name).exists():
            shutil.copytree(source / name, target / name, ignore=_unfinished)
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=_not_again(source))
    committed = _batches(target / "commits")
    for batch in _batches(target / "offsets"):
        if batch > (committed[-1] + 1 if committed else 0):
            _remove(target / "offsets", batch)


def _unfinished(_folder: str | PathLike[str], names: list[str]) -> set[str]:
    """Return the files that a killed JVM left half written: Spark refuses to start with such a file in its logs."""
    return {name for name in names if name.endswith(".tmp")}


def _not_again(source: Path) -> Callable[[str | PathLike[str], list[str]], set[str]]:
    def ignored(folder: str | PathLike[str], names: list[str]) -> set[str]:
        return {"commits", "offsets"} & set(names) if Path(folder) == source else set()

    return ignored


def _remove(log: Path, batch: int) -> None:
    (log / str(batch)).unlink()
    (log / f".{batch}.crc").unlink(missing_ok=True)


def _batches(log: Path) -> list[int]:
    return sorted(int(file.name) for file in log.glob("[0-9]*") if file.name.isdecimal()) if log.exists() else []


def _end_of(folder: Path, batch: int) -> int:
    """Return the end offset of a batch: the last line of its file is our source's, ``{"at": seq}``."""
    file = folder / "offsets" / str(batch)
    try:
        return int(json.loads(file.read_text().splitlines()[-1])["at"])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise CheckpointError(
            f"{file} is not an offset of this query ({error}); open the query with a new checkpoint folder"
        ) from error
