"""The manifest of a folder of parts: the committed seq intervals, and the part that is being committed.

The manifest is replaced before a part gets its name. If the temporary file still exists after a crash, the part was
never committed; if it does not, the part is committed, even if a reader has removed it since.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from gateway.core.intervals import IntervalSet
from infra.statefiles import StateError, write_atomically

NAME = "_manifest.json"


class PendingPart(msgspec.Struct, frozen=True):
    """A part that is being named: ``temporary`` becomes ``part``, and then ``intervals`` are committed."""

    part: str
    temporary: str
    intervals: list[tuple[int, int]]


class Manifest(msgspec.Struct, frozen=True):
    """The file's content. ``owner`` is the state that numbers the seqs; another state's seqs mean other events."""

    owner: str
    next_release: int
    committed: list[tuple[int, int]]
    pending: PendingPart | None = None


def recover(folder: Path, owner: str) -> tuple[IntervalSet, int]:
    """Read the manifest of ``folder``, settle an interrupted commit, and return (committed, next release number).

    Raises:
        StateError: the folder belongs to another state, or its manifest cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    if not path.exists():
        if any(folder.glob("[0-9]*-[0-9]*-[0-9]*.*")):
            raise StateError(f"{folder} has result parts but no {NAME}: choose an empty folder")
        return IntervalSet(), 0
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.DecodeError as error:
        raise StateError(f"{path} cannot be read ({error}): restore it or choose an empty folder") from error
    if manifest.owner != owner:
        raise StateError(
            f"{folder} holds results of a different state_dir: choose an empty folder, or restore that state"
        )
    committed = IntervalSet(manifest.committed)
    next_release = manifest.next_release
    if manifest.pending is not None and not (folder / manifest.pending.temporary).exists():
        for first, last in manifest.pending.intervals:
            committed.add(first, last)
        next_release += 1
    if manifest.pending is not None:
        # Before the temporary file is removed, or the next start would count the part as committed.
        save(folder, Manifest(owner, next_release, list(committed)))
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink()
    return committed, next_release


def peek(folder: Path, owner: str) -> IntervalSet | None:
    """Return which results of the state of ``owner`` are in ``folder``; None if there are none. Changes nothing."""
    try:
        manifest = msgspec.json.decode((folder / NAME).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None  # opening the sink reports the problem
    if manifest.owner != owner:
        return None
    committed = IntervalSet(manifest.committed)
    if manifest.pending is not None and not (folder / manifest.pending.temporary).exists():
        for first, last in manifest.pending.intervals:
            committed.add(first, last)
    return committed


def save(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest durably."""
    write_atomically(folder / NAME, msgspec.json.encode(manifest))
