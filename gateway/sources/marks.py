"""Identifies a source, so that a position is never used with a source that it does not belong to.

A mark is stored in the head of the run log, beside its position, and one write replaces both.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from gateway.connectors.position import Position

# A file of up to this size is hashed completely; of a larger one its head, its tail, and blocks evenly between them.
_WHOLE_BYTES: Final = 4 << 20
_END_BYTES: Final = 1 << 20
_BLOCK_BYTES: Final = 16 << 10
_BLOCKS: Final = 64


class FileMark(msgspec.Struct, frozen=True, tag="file"):
    """A file, or a mailbox: ``digest`` is the hash of its first ``size_bytes`` bytes on disk.

    Appended data changes nothing. The number of replays is not part of it: a position in a pass means the same in a
    replay with more or fewer passes.
    """

    path: str
    size_bytes: int
    digest: str


class MailsMark(msgspec.Struct, frozen=True, tag="mails"):
    """A folder of mails: ``digest`` is the hash of the first ``count`` of them, in order of path."""

    path: str
    count: int
    digest: str


class FolderMark(msgspec.Struct, frozen=True, tag="folder"):
    """A folder of files; the list beside the run log names them (see ``ListedFiles``).

    ``looped``: its list is replayed several times, so that a number beyond the list means one of its files again.
    """

    path: str
    looped: bool


class BucketMark(msgspec.Struct, frozen=True, tag="bucket"):
    """Objects below a prefix of a bucket; a list names them (see ``ListedFiles``)."""

    path: str


class KafkaMark(msgspec.Struct, frozen=True, tag="kafka"):
    """Topics of a cluster, each with its id; an id is empty if the brokers have none (before Kafka 2.8)."""

    brokers: str
    cluster: str
    topics: dict[str, str]


class ResultsMark(msgspec.Struct, frozen=True, tag="query"):
    """Another query's results; ``owner`` is the state that numbers them."""

    query: str
    owner: str


class JournalMark(msgspec.Struct, frozen=True, tag="journal"):
    """Records from senders in a journal of ours: a position is a place in the journal, whoever the sender is."""

    place: str


class StreamsMark(msgspec.Struct, frozen=True, tag="several"):
    """Several sources, by the names of their streams."""

    of: dict[str, Mark]


Mark = FileMark | MailsMark | FolderMark | BucketMark | KafkaMark | ResultsMark | JournalMark | StreamsMark


@dataclass(frozen=True, slots=True)
class Look:
    """A source as it is now, compared with the mark of what was read.

    Attributes:
        mark: its present mark.
        changed: how it differs, in words; empty if positions continue in it.
        note: a log message although positions continue; may be empty.
        kept: the part of a position that stays valid when the source has changed.
        reset: called before the run log takes the new mark; may be called twice.
    """

    mark: Mark
    changed: str = ""
    note: str = ""
    kept: Callable[[Position], Position] = lambda position: Position(replayed=position.replayed)
    reset: Callable[[], None] = lambda: None


def described(mark: Mark) -> str:
    """Return what a mark identifies, for a message."""
    match mark:
        case FileMark() | MailsMark() | FolderMark() | BucketMark():
            return mark.path
        case KafkaMark():
            return f"the topics {', '.join(sorted(mark.topics))} at {mark.brokers}"
        case ResultsMark():
            return f"the results of query {mark.query}"
        case JournalMark():
            return mark.place
        case StreamsMark():
            return ", ".join(f"{name}: {described(each)}" for name, each in mark.of.items())


def look_at_file(path: Path, known: Mark | None) -> Look:
    """Compare a file with the mark of the one that was read. Blocks.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        mark = FileMark(str(path), size_bytes, _digest(file, size_bytes))
        if not isinstance(known, FileMark):
            return Look(mark, _other_kind(known, mark))
        if size_bytes < known.size_bytes:
            return Look(mark, f"it has {size_bytes} bytes, and had {known.size_bytes}")
        if _digest(file, known.size_bytes) != known.digest:
            return Look(mark, "its content is different")
    return Look(mark, note=_moved(known.path, mark.path))


def look_at_mails(path: Path, known: Mark | None) -> Look:
    """Compare a folder of mails with the mark of the one that was read. Blocks."""
    names = [_mail_name(file.relative_to(path)) for file in sorted(path.rglob("*")) if file.is_file()]
    mark = MailsMark(str(path), len(names), _digest_of_names(names))
    if not isinstance(known, MailsMark):
        return Look(mark, _other_kind(known, mark))
    if len(names) < known.count or _digest_of_names(names[: known.count]) != known.digest:
        return Look(mark, "other mails are in it, or come before those that were read")
    return Look(mark, note=_moved(known.path, mark.path))


def look_at_results(query: str, owner: str, known: Mark | None) -> Look:
    """Compare a query's results with the mark of those that were read; ``owner`` is the state that numbers them."""
    mark = ResultsMark(query, owner)
    if not isinstance(known, ResultsMark):
        return Look(mark, _other_kind(known, mark))
    return Look(mark, "" if known.owner == owner else "its state is new, and it numbers its results from 0 again")


def look_at_journal(place: str, known: Mark | None) -> Look:
    """Note where senders send to; earlier records are in the journal, wherever they were sent to."""
    mark = JournalMark(place)
    if not isinstance(known, JournalMark):
        return Look(mark, _other_kind(known, mark))
    moved = (
        f"it reads from {place} now, and read from {known.place}; records of the old place in the journal come first"
    )
    return Look(mark, note="" if known.place == place else moved)


def look_at_topics(brokers: str, cluster: str, topics: dict[str, str], known: Mark | None) -> Look:
    """Compare topics with the mark of those that were read; topics that are no longer read are remembered.

    Args:
        brokers: their addresses.
        cluster: the cluster's id.
        topics: the id of each topic that is read.
        known: the mark of what was read.
    """
    if not isinstance(known, KafkaMark):
        mark = KafkaMark(brokers, cluster, topics)
        return Look(mark, _other_kind(known, mark))
    if known.cluster != cluster:
        gone, why = set(known.topics), f"the cluster is {cluster}, and was {known.cluster}"
    else:
        ids = ((topic, known.topics.get(topic, ""), number) for topic, number in topics.items())
        gone = {topic for topic, old, new in ids if old and new and old != new}
        why = f"{', '.join(sorted(gone))} was deleted and created again" if gone else ""
    kept = {topic: number for topic, number in known.topics.items() if topic not in gone}
    mark = KafkaMark(brokers, cluster, {**kept, **topics})
    return Look(mark, why, kept=lambda position: _without(position, gone))


def looks_together(looks: dict[str, Look], known: Mark | None) -> Look:
    """Return the outcome for several sources: one that has changed is read from its start, and the others go on.

    Args:
        looks: the outcome for each, by the name of its stream.
        known: the mark of what was read.
    """
    mark = StreamsMark({name: look.mark for name, look in looks.items()})
    changed = {name: look.changed for name, look in looks.items() if look.changed}

    def kept(position: Position) -> Position:
        if known is not None and not isinstance(known, StreamsMark):
            return Position(replayed=position.replayed)
        streams = {
            name: looks[name].kept(at) if name in changed else at
            for name, at in position.streams.items()
            if name in looks
        }
        record = sum(at.record for at in streams.values())
        return Position(record=record, streams=streams, replayed=position.replayed)

    def reset() -> None:
        for look in looks.values():
            look.reset()

    other = _other_kind(known, mark)
    why = other or "; ".join(f"{name}: {what}" for name, what in changed.items())
    note = "; ".join(f"{name}: {look.note}" for name, look in looks.items() if look.note)
    return Look(mark, why, note, kept, reset)


def mark_of(known: Mark | None, stream: str) -> Mark | None:
    """Return the mark of one of several sources; None if it is not known."""
    return known.of.get(stream) if isinstance(known, StreamsMark) else None


def _digest(file: BinaryIO, size_bytes: int) -> str:
    """Return the hash of the first ``size_bytes`` of a file, or of samples of them."""
    digest = hashlib.sha256(size_bytes.to_bytes(8, "big"))
    for start, length in _pieces(size_bytes):
        file.seek(start)
        digest.update(file.read(length))
    return digest.hexdigest()


def _pieces(size_bytes: int) -> list[tuple[int, int]]:
    if size_bytes <= _WHOLE_BYTES:
        return [(0, size_bytes)]
    between = range(_END_BYTES, size_bytes - _END_BYTES, (size_bytes - 2 * _END_BYTES) // _BLOCKS)
    blocks = [(start, _BLOCK_BYTES) for start in between]
    return [(0, _END_BYTES), *blocks, (size_bytes - _END_BYTES, _END_BYTES)]


def _digest_of_names(names: list[str]) -> str:
    return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()


def _mail_name(path: Path) -> str:
    """Return a mail's name without its maildir flags."""
    return str(path.with_name(path.name.partition(":")[0]))


def _other_kind(known: Mark | None, mark: Mark) -> str:
    """Return the message if the kind of source is another; state of a version without marks is accepted."""
    return "" if known is None or type(known) is type(mark) else "it is another kind of source"


def _moved(old: str, new: str) -> str:
    return "" if old == new else f"the content read from {old} is now in {new}; reading continues there"


def _without(position: Position, topics: set[str]) -> Position:
    offsets = {key: offset for key, offset in position.offsets.items() if key.rpartition("/")[0] not in topics}
    return msgspec.structs.replace(position, offsets=offsets)
