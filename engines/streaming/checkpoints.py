"""Spark's checkpoint folders of a stateful query: one for each start of a driver; and its progress.

A JVM may outlive its host by seconds and still write. So a new start never uses the folder of the previous one, but a
copy of it.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_COPYING = "copying-"
_SCHEMA_PATH = re.compile(r'"file:(?://)?(/[^"]*?/)(state/\d+/_stateSchema/[^"]*)"')


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

    def repeats_before(self, batch_ends: Sequence[int]) -> int:
        """Return the seq before which micro-batches run again with the limits that they had.

        Such a micro-batch answers nothing until it has all its runs, so none of them may wait for an answer.

        Args:
            batch_ends: the ends of micro-batches after the planned one, whose results the sink may have.
        """
        return max(self.resume_end_seq, *batch_ends, 0)


def new_start(base: Path) -> Path:
    """Create the folder for this start: a copy of the newest one, which stays unchanged; delete older ones."""
    make(base)
    for left in base.glob(f"{_COPYING}*"):
        shutil.rmtree(left)
    starts = _starts(base)
    new = _next_start(base)
    copy = base / f"{_COPYING}{new.name}"
    if starts:
        _copy(base / str(starts[-1]), copy, new)
    else:
        copy.mkdir()
    copy.rename(new)
    for old in starts[:-1]:
        shutil.rmtree(base / str(old))
    return new


def adopt(base: Path, folder: Path) -> Path:
    """Make a folder, which came from another machine and lies in ``base``, the newest start, and delete older ones.

    Return where it is now.
    """
    older, new = _starts(base), _next_start(base)
    _relocate(folder, new)
    folder.rename(new)
    for start in older:
        shutil.rmtree(base / str(start))
    return new


def newest(base: Path) -> Path | None:
    """Return the folder of the newest start; None if there is none."""
    starts = _starts(base) if base.exists() else []
    return base / str(starts[-1]) if starts else None


def _starts(base: Path) -> list[int]:
    return sorted(int(folder.name) for folder in base.iterdir() if folder.name.isdecimal())


def _next_start(base: Path) -> Path:
    starts = _starts(base)
    return base / str(starts[-1] + 1 if starts else 1)


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
    _copy(folder, copy, copy)
    return copy


def _relocate(folder: Path, place: Path) -> None:
    """Let a checkpoint that will be at ``place`` name its own state schemas, of which Spark stores the full paths."""
    for file in _metadata(folder):
        text = file.read_text()
        relocated = _SCHEMA_PATH.sub(lambda found: f'"file:{json.dumps(str(place))[1:-1]}/{found[2]}"', text)
        if relocated != text:
            file.unlink()  # it may be a link to a file that must stay as it is
            file.write_text(relocated)
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _fetch_schemas(folder: Path) -> None:
    """Copy state schemas that a checkpoint of an earlier version left in the folders of earlier starts."""
    for file in _metadata(folder):
        for found in _SCHEMA_PATH.finditer(file.read_text()):
            there, here = (json.loads(f'"{text}"') for text in (found[1] + found[2], found[2]))
            if not (folder / here).exists() and Path(there).exists():
                (folder / here).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(there, folder / here)


def _metadata(folder: Path) -> list[Path]:
    """Return the metadata of operators, one file for each start that committed."""
    return [log / str(batch) for log in folder.glob("state/*/_metadata/v2") for batch in _batches(log)]


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


def committed_files(start: Path) -> list[str]:
    """Return the files of a start, relative to it, that its committed batches and the planned one need."""
    # The commits are listed first: everything that they refer to was written before them.
    committed = _batches(start / "commits")
    next_batch = committed[-1] + 1 if committed else 0
    found = []
    for file in sorted(start.rglob("*")):
        path = file.relative_to(start)
        batch = path.name.removeprefix(".").removesuffix(".crc")
        if path.parts[0] == "offsets" and batch.isdecimal() and int(batch) > next_batch:
            continue
        if path.parts[0] == "commits" and batch.isdecimal() and int(batch) >= next_batch:
            continue
        # Hadoop writes a file under a temporary name first, and a checksum beside it under such a name, too.
        if file.is_file() and not path.name.endswith((".tmp", ".tmp.crc")):
            found.append(path.as_posix())
    return found


def _copy(source: Path, target: Path, place: Path) -> None:
    """Copy a start, into which a JVM may still write, to ``target``, which will be renamed to ``place``."""
    target.mkdir()
    for path in committed_files(source):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        # That JVM may remove old versions of the state.
        with suppress(FileNotFoundError):
            shutil.copy2(source / path, target / path)
    _fetch_schemas(target)
    _relocate(target, place)


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
