"""Checks, before reading, whether a query's source is still the one that its positions belong to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gateway.config.models import (
    FileSourceConfig,
    HttpSourceConfig,
    KafkaSourceConfig,
    MqttSourceConfig,
    QuerySourceConfig,
    S3SourceConfig,
    SeveralSources,
    SourceConfig,
)
from gateway.connectors.position import Position
from gateway.query.identity import read_identity
from gateway.sources.choose import stream_folder
from gateway.sources.files.filesource import is_mail, make_bucket
from gateway.sources.files.folder import Folder
from gateway.sources.files.listed import Storage
from gateway.sources.files.notes import NOTES_NAME, NotedFile, Notes, NotesFile, NotesStore, pruned
from gateway.sources.marks import (
    BucketMark,
    FolderMark,
    Look,
    Mark,
    look_at_file,
    look_at_journal,
    look_at_mails,
    look_at_results,
    look_at_topics,
    looks_together,
    mark_of,
)
from infra.rows.base import SourceError, SourceUnavailableError
from infra.threads import run_to_end

if TYPE_CHECKING:
    from gateway.sources.kafka.topicids import Topics


LocalConfig: TypeAlias = FileSourceConfig | MqttSourceConfig | HttpSourceConfig


def is_local(config: SourceConfig | SeveralSources) -> bool:
    """Whether the source can be checked before the query is opened, without requests to other systems."""
    if isinstance(config, SeveralSources):
        return all(is_local(each) for each in config.of.values())
    return isinstance(config, LocalConfig)


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A query's source, and what is known of it.

    Attributes:
        config: the source's config.
        folder: the query's part of the state_dir.
        kept_files: returns where the list of the objects of an ``s3`` source is kept, by the name of its stream (empty
            for the only source of a query).
        stream: the name of its stream.
    """

    config: SourceConfig | SeveralSources
    folder: Path
    kept_files: Callable[[str], NotesStore]
    stream: str = ""

    def of(self, name: str, config: SourceConfig) -> SourcePlace:
        """Return one of several sources."""
        return SourcePlace(config, stream_folder(self.folder, name), self.kept_files, name)


async def look(place: SourcePlace, known: Mark | None, needed: Position) -> Look:
    """Compare a source with the mark of what was read.

    Args:
        place: the source.
        known: the mark of what was read.
        needed: no position before it is needed again.

    Raises:
        StateError: state on disk is damaged.
        SourceError: the source cannot be read; SourceUnavailableError: not now.
    """
    config, folder = place.config, place.folder
    match config:
        case SeveralSources():
            looks = {
                name: await look(place.of(name, each), mark_of(known, name), needed.of_stream(name))
                for name, each in config.of.items()
            }
            return looks_together(looks, known)
        case QuerySourceConfig():
            queries = folder.parents[2] if place.stream else folder.parent
            identity = await run_to_end(lambda: read_identity(queries / config.name))
            if identity is None:
                raise SourceUnavailableError(f"query {config.name} has not begun yet")
            return look_at_results(config.name, identity.owner, known)
        case KafkaSourceConfig():
            found = await _topics(config)
            return look_at_topics(config.brokers, found.cluster, found.ids, known)
        case S3SourceConfig():
            bucket, kept = make_bucket(config, folder), place.kept_files(place.stream)
            return await run_to_end(
                lambda: _look_at_files(bucket, kept, BucketMark(bucket.place), config.follow, known, needed)
            )
        case _:
            return await run_to_end(lambda: look_here(config, folder, known, needed))


async def _topics(config: KafkaSourceConfig) -> Topics:
    from gateway.connectors.kafkaclients import client_settings
    from gateway.sources.kafka.topicids import topics_of
    from infra.clienttls import BadTlsFilesError
    from infra.kafka.fetched import as_source_errors
    from infra.kafka.fetching import REQUEST_TIMEOUT_MS

    try:
        with as_source_errors(f"asking {config.brokers} for the ids of its topics"):
            settings = {**client_settings(config), "request_timeout_ms": REQUEST_TIMEOUT_MS}
            return await topics_of(settings, config.topics)
    except BadTlsFilesError as error:
        raise SourceError(str(error)) from error


def look_here(config: LocalConfig, folder: Path, known: Mark | None, needed: Position) -> Look:
    """See ``look``: for a source that is entirely on this machine. Blocks; changes nothing."""
    match config:
        case MqttSourceConfig():
            return look_at_journal(f"the MQTT topics {', '.join(config.topics)} at {config.host}", known)
        case HttpSourceConfig():
            return look_at_journal(f"POST to {config.listen}{config.path}", known)
    try:
        if not config.path.is_dir():
            return look_at_file(config.path, known)
        if is_mail(config, folder):
            return look_at_mails(config.path, known)
        mark = FolderMark(str(config.path), config.replay is not None and config.replay.loops > 1)
        kept = NotesFile(folder / NOTES_NAME)
        return _look_at_files(Folder(config.path), kept, mark, config.follow, known, needed)
    except OSError as error:
        raise SourceError(f"{config.path} cannot be read ({error}): restore it") from error


def _look_at_files(
    storage: Storage,
    kept: NotesStore,
    mark: FolderMark | BucketMark,
    follow: bool,
    known: Mark | None,
    needed: Position,
) -> Look:
    forget = partial(kept.write, None)
    if known is not None and type(known) is not type(mark):
        return Look(mark, "it is another kind of source", reset=forget)
    notes = kept.read()
    if notes is None:
        lost = known is not None and needed.record > 0
        return Look(mark, f"{kept.where}, the list of its files, is missing" if lost else "")
    if isinstance(known, FolderMark) and known.looped and follow:
        return Look(mark, "its files were replayed several times, and are followed now", reset=forget)
    present = storage.look()
    if notes.folder != mark.path:
        if _is_moved(notes, storage, present, needed.part):
            moved = Notes(mark.path, notes.first, notes.taken, notes.done)
            note = f"the files of {notes.folder} have moved to {mark.path}; reading continues there"
            return Look(mark, note=note, reset=partial(kept.write, moved))
        why = f"its files are not those of {notes.folder}"
        return Look(mark, why, reset=forget)
    return _look_again(storage, present, kept, notes, mark, follow, needed.part)


def _look_again(
    storage: Storage,
    present: Collection[str],
    kept: NotesStore,
    notes: Notes,
    mark: FolderMark | BucketMark,
    follow: bool,
    next_file: int,
) -> Look:
    """Check whether finished files, where they were, have other content now."""
    done = max(0, next_file - notes.first)
    old = pruned(notes, done if follow else 0, present)
    if not follow:
        others = _others(storage, notes.taken[:done], present)
        new = len(set(present) - {file.name for file in notes.taken})
        note = f"{new} files appeared in {mark.path} after the first start: only follow: true reads such files"
        why = f"{others[0].name} and {len(others) - 1} more have other content" if others else ""
        return Look(mark, why, note if new else "", reset=partial(kept.write, None) if why else _nothing)
    others = _others(storage, old.done_files, present)
    if not others:
        return Look(mark)
    unchanged = tuple(file for file in old.done_files if file not in others)
    renewed = Notes(old.folder, old.first, old.taken, unchanged)
    note = f"{len(others)} files in {mark.path} have other content than when they were read, and are read as new ones"
    return Look(mark, note=note, reset=partial(kept.write, renewed))


def _is_moved(notes: Notes, storage: Storage, present: Collection[str], next_file: int) -> bool:
    """Whether the storage has all files that are still needed, and some that were read, all of them unchanged."""
    done = max(0, next_file - notes.first)
    read = [*notes.done_files, *notes.taken[:done]]
    needed = notes.taken[done:]
    if any(file.name not in present for file in needed) or not any(f.name in present for f in (*read, *needed)):
        return False
    return not _others(storage, (*read, *needed), present)


def _others(storage: Storage, files: Collection[NotedFile], present: Collection[str]) -> list[NotedFile]:
    return [file for file in files if file.name in present and storage.difference(file)]


def _nothing() -> None:
    pass
