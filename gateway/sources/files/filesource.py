"""Sources of type ``file`` and ``s3``, and when their records are due."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa

from gateway.config.models import FileSourceConfig, S3SourceConfig
from gateway.connectors.objectstores import make_objects
from gateway.sources.base import Source
from gateway.sources.files.bucket import Bucket
from gateway.sources.files.folder import Folder
from gateway.sources.files.listed import ListedFiles, Storage
from gateway.sources.files.mail import read_mail_table
from gateway.sources.files.notes import NOTES_NAME, NotesFile, NotesStore
from gateway.sources.files.reading.passes import FixedFiles, PassesSource
from gateway.sources.files.reading.referring import ReferableFiles
from gateway.sources.files.recorded import column_times, joined_times, times_of_files
from gateway.sources.files.table import TableSource
from gateway.sources.schedule import DueTimes, RecordedSchedule, Schedule
from gateway.sources.threaded import ThreadedSource
from infra.clock import Clock
from infra.files.choosing import open_by_name
from infra.messages import BucketPlace, FileReading


def make_file_source(config: FileSourceConfig, folder: Path, clock: Clock, *, strict: bool) -> Source:
    """Return the source of ``config``, not opened yet.

    Args:
        config: the source's config.
        folder: the query's part of the state_dir.
        clock: time.
        strict: see docs/schema-drift.md.
    """
    loops = config.replay.loops if config.replay else 1
    id_field = config.replay.id_field if config.replay else None
    if is_mail(config, folder):
        return ThreadedSource(TableSource(lambda: read_mail_table(config.path), loops=loops, id_field=id_field))
    open_file = partial(open_by_name, strict=strict)
    if not config.path.is_dir():
        one = FixedFiles([config.path], loops)
        return ReferableFiles(PassesSource(one, open_file, id_field=id_field), one, file_reading(config, strict=strict))
    kept = NotesFile(folder / NOTES_NAME)
    files = ListedFiles(Folder(config.path), kept, clock, follow=config.follow, loops=loops)
    passes = PassesSource(files, open_file, id_field=id_field, folder=True)
    return ReferableFiles(passes, files, file_reading(config, strict=strict), files.acknowledge)


def file_reading(config: FileSourceConfig | S3SourceConfig, *, strict: bool) -> FileReading:
    """Return how others read a source's files; see ``make_file_source``."""
    if isinstance(config, S3SourceConfig):
        place = BucketPlace(bucket=config.bucket, prefix=config.prefix, endpoint=config.endpoint, region=config.region)
        return FileReading(bucket=place, named=True, strict=strict)
    if config.path.is_dir():
        return FileReading(folder=str(config.path.absolute()), named=True, strict=strict)
    return FileReading(folder=str(config.path.parent.absolute()), strict=strict)


def make_s3_source(config: S3SourceConfig, folder: Path, kept: NotesStore, clock: Clock, *, strict: bool) -> Source:
    """Return the source of ``config``, not opened yet.

    Args:
        config: the source's config.
        folder: the query's part of the state_dir, for the copy of the object that is read.
        kept: where the list of the objects is kept.
        clock: time.
        strict: see docs/schema-drift.md.
    """
    files = ListedFiles(make_bucket(config, folder), kept, clock, follow=config.follow)
    passes = PassesSource(files, partial(open_by_name, strict=strict), folder=True)
    return ReferableFiles(passes, files, file_reading(config, strict=strict), files.acknowledge)


def make_bucket(config: S3SourceConfig, folder: Path) -> Storage:
    """Return the objects that ``config`` names; ``folder`` is the query's part of the state_dir."""
    place = f"s3://{config.bucket}/{config.prefix}" + (f" at {config.endpoint}" if config.endpoint else "")
    return Bucket(place, lambda: make_objects(config), folder / "object", object_bytes_max=config.object_limit_bytes)


def is_mail(config: FileSourceConfig, folder: Path) -> bool:
    """Whether the source is a mailbox, in a file or a folder; ``folder`` is the query's part of the state_dir."""
    if config.path.is_dir():
        # The files of a folder may have been removed since they were listed.
        return not config.has_row_files and not (folder / NOTES_NAME).exists()
    return config.path.name.endswith((".mbox", ".mbox.gz"))


def make_schedule(config: FileSourceConfig, schema: pa.Schema, folder: Path, clock: Clock) -> DueTimes | None:
    """Return when the records are due, once the source is open; None if they are read as fast as possible.

    Blocks: for recorded times it reads one column of all files.

    Raises:
        SourceError: the times cannot be read.
    """
    replay = config.replay
    if replay is None:
        return None
    if replay.profile is not None:
        return Schedule([(step.for_s / replay.speed, step.rate_per_s * replay.speed) for step in replay.profile])
    if replay.rate_per_s is not None:
        return Schedule([(1.0, replay.rate_per_s * replay.speed)])
    if replay.times is None:
        return None
    field = schema.field(replay.times)
    if is_mail(config, folder):
        column = read_mail_table(config.path).column(field.name).combine_chunks()
        times = joined_times([column_times(column)])
    else:
        source = _one_pass(config, folder, clock)
        times = times_of_files(source, field)
    return RecordedSchedule(times, speed=replay.speed, loops=replay.loops)


def _one_pass(config: FileSourceConfig, folder: Path, clock: Clock) -> PassesSource:
    open_file = partial(open_by_name, strict=False)
    if not config.path.is_dir():
        return PassesSource(FixedFiles([config.path]), open_file)
    files = ListedFiles(Folder(config.path), NotesFile(folder / NOTES_NAME), clock, follow=False)
    return PassesSource(files, open_file, folder=True)
