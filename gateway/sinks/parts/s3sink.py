"""The S3 sink: parts are uploaded under unique names, then one conditional write makes each visible."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from typing import Final, Literal, NoReturn

import msgspec

from gateway.connectors.position import Position
from gateway.core.intervals import IntervalSet
from gateway.sinks.base import FencedError, ReleasedRows, SinkError, SinkUnavailableError
from gateway.sinks.parts import s3manifest as manifests
from gateway.sinks.parts.filesink import PartName, split_parts, write_part
from gateway.sinks.parts.s3manifest import PAGE_PARTS, PAGES, PARTS, Page, S3Manifest
from infra.failpoints import reached
from infra.objectstore.base import ObjectStore, StoreRefusedError, StoreUnavailableError
from infra.objectstore.versions import OvertakenError, Versions
from infra.statefiles import StateError

_LOG = logging.getLogger(__name__)
_CLAIMS_MAX: Final = 10
_LEFTOVERS_MAX: Final = 10_000
Format = Literal["jsonl", "parquet"]


@dataclass(slots=True)
class _Attempt:
    """A part in progress, and the manifest that will name it; ``key`` identifies its releases."""

    key: tuple[tuple[int, int, bool], ...]
    part: str
    manifest: S3Manifest
    uploaded: bool = False


class S3Sink:
    """Writes releases of one query below a prefix. Its methods block: call them in a thread, one at a time.

    Args:
        make_store: returns the store, at the prefix.
        owner: identity of the state that numbers the seqs.
        epoch: of the gateway; a gateway that opens with a higher one fences this one.
        writer: a random word; it stays the same when opening is retried.
        format: JSON lines or Parquet.
        ordered: True cuts a new part at every gap, so that each part is one interval.
        page_parts: how many parts the manifest names before their names go onto a page.

    Raises:
        StateError: the content belongs to another state, or the store refuses.
        FencedError: a later gateway has written here.
        SinkUnavailableError: not now.
    """

    def __init__(
        self,
        make_store: Callable[[], ObjectStore],
        *,
        owner: str,
        epoch: int,
        writer: str,
        format: Format,  # noqa: A002 -- the config's word
        ordered: bool,
        page_parts: int = PAGE_PARTS,
    ) -> None:
        self._owner = owner
        self._epoch = epoch
        self._format: Format = format
        self._ordered = ordered
        self._page_parts = page_parts
        self._writer = writer
        self._attempt: _Attempt | None = None
        # Objects that may have been written, some of which the next version names.
        self._unsettled: list[str] = []
        try:
            self._store = make_store()
            self._versions = Versions(self._store, manifests.FOLDER)
            self._number, self._manifest = self._claim()
            self._clean()
        except StoreUnavailableError as error:
            raise SinkUnavailableError(str(error)) from error
        except StoreRefusedError as error:
            raise StateError(str(error)) from error
        self.committed = IntervalSet(self._manifest.committed)

    def commit(self, releases: Sequence[ReleasedRows], source: Position) -> None:  # noqa: ARG002 -- parts keep no source position
        """See ``Sink.commit``."""
        with _in_sink_words():
            waiting = list(releases)
            while waiting := [r for r in waiting if not self.committed.covers(r.first_seq, r.last_seq)]:
                self._commit_part(split_parts(waiting, contiguous=self._ordered)[0])

    def close(self) -> None:
        """Do nothing: nothing is open, and the manifest is complete."""

    # ------------------------------------------------------------------------------------------------------ opening

    def _claim(self) -> tuple[int, S3Manifest]:
        """Write a version with our epoch, after which no earlier writer can write any more; return it."""
        for _ in range(_CLAIMS_MAX):
            latest = self._versions.latest()
            if latest is None:
                if next(self._store.list(f"{PARTS}/"), None) is not None:
                    raise StateError(f"{self._store} has result parts but no manifest: choose an empty prefix")
                number, found = 0, S3Manifest(self._owner, self._epoch, self._writer, 0, [], [])
            else:
                number, found = latest.number, manifests.parse(latest, str(self._store))
                self._check_claim(found)
            claim = msgspec.structs.replace(found, epoch=self._epoch, writer=self._writer)
            try:
                self._versions.add(number + 1, msgspec.json.encode(claim))
            except OvertakenError:
                continue
            return number + 1, claim
        raise SinkUnavailableError(f"{self._store}: other gateways write there all the time")

    def _check_claim(self, found: S3Manifest) -> None:
        if found.owner != self._owner:
            raise StateError(
                f"{self._store} holds results of a different state_dir: choose an empty prefix, or restore the state "
                "that they belong to"
            )
        if found.epoch > self._epoch or (found.epoch == self._epoch and found.writer != self._writer):
            self._fenced(found)

    def _fenced(self, found: S3Manifest) -> NoReturn:
        raise FencedError(
            f"{self._store} was taken over by epoch {found.epoch} of the same state (this gateway is {self._epoch}): "
            "end this gateway; if no other runs, its state_dir is an old copy: restore the newest"
        )

    def _clean(self) -> None:
        """Delete the leftovers of crashes: no earlier writer can make them visible any more.

        Objects that a later gateway may have begun meanwhile have a higher epoch and stay. Leftovers have the release
        numbers of the latest parts, so the listing is short, however many parts there are.
        """
        self._versions.prune_all(self._number)
        first = self._manifest.parts[0] if self._manifest.parts else f"{self._manifest.next_release:010d}"
        for folder, live in ((PARTS, self._manifest.parts), (PAGES, [self._manifest.page])):
            kept, start = set(live), first.partition("-")[0]
            for name in list(islice(self._store.list(f"{folder}/", after=f"{folder}/{start}"), _LEFTOVERS_MAX)):
                stem = name.rpartition("/")[2]
                if stem not in kept and 0 <= manifests.epoch_of(stem) < self._epoch:
                    _LOG.info("%s: deleting %s, left over from a crash", self._store, name)
                    self._store.delete(name)

    # --------------------------------------------------------------------------------------------------- committing

    def _commit_part(self, group: Sequence[ReleasedRows]) -> None:
        attempt = self._prepare(group)
        reached("sink.commit.prepared")
        try:
            self._versions.add(self._number + 1, msgspec.json.encode(attempt.manifest))
        except OvertakenError as overtaken:
            found = manifests.parse(overtaken.latest, str(self._store))
            if found.writer != self._writer:
                self._fenced(found)
            # An earlier try of ours, with other releases, whose answer was lost.
            self._take(overtaken.latest.number, found)
        else:
            reached("sink.commit.visible")
            self._take(self._number + 1, attempt.manifest)

    def _take(self, number: int, manifest: S3Manifest) -> None:
        """Continue from a version that was written."""
        self._number, self._manifest = number, manifest
        # A new set, since the event loop may read the old one meanwhile.
        self.committed = IntervalSet(manifest.committed)
        live = {f"{PAGES}/{manifest.page}", *(f"{PARTS}/{part}" for part in manifest.parts)}
        dead = [name for name in self._unsettled if name not in live]
        self._attempt, self._unsettled = None, []
        try:
            self._versions.prune(number)
            for name in dead:
                self._store.delete(name)
        except (StoreUnavailableError, StoreRefusedError) as error:
            _LOG.warning("an object that is no longer needed was not deleted: %s", error)

    def _prepare(self, group: Sequence[ReleasedRows]) -> _Attempt:
        """Upload a part, unless an earlier try did, and return what makes it visible."""
        key = tuple((release.first_seq, release.last_seq, release.late) for release in group)
        attempt = self._attempt
        if attempt is None or attempt.key != key:
            # Unique names: a request of an earlier try may still be in progress.
            attempt = self._attempt = self._new_attempt(key, group)
            self._unsettled.append(f"{PARTS}/{attempt.part}")
            if attempt.manifest.page != self._manifest.page:
                self._unsettled.append(f"{PAGES}/{attempt.manifest.page}")
        if not attempt.uploaded:
            content = BytesIO()
            write_part(content, [release.item for release in group], self._format)
            self._store.put(f"{PARTS}/{attempt.part}", content.getvalue())
            old = self._manifest
            if attempt.manifest.page != old.page:
                self._store.put(f"{PAGES}/{attempt.manifest.page}", msgspec.json.encode(Page(old.page, old.parts)))
            attempt.uploaded = True
        return attempt

    def _new_attempt(self, key: tuple[tuple[int, int, bool], ...], group: Sequence[ReleasedRows]) -> _Attempt:
        """Return a new try; when the manifest is full its names go to a page."""
        old, part = self._manifest, self._part_name(group)
        parts, page = [*old.parts, part], old.page
        if len(old.parts) >= self._page_parts:
            page = f"{old.parts[0].partition('-')[0]}-{manifests.unique_name(self._epoch)}"
            parts = [part]
        intervals = list(IntervalSet([*old.committed, *((first, last) for first, last, _ in key)]))
        manifest = S3Manifest(self._owner, self._epoch, self._writer, old.next_release + 1, intervals, parts, page)
        return _Attempt(key, part, manifest)

    def _part_name(self, group: Sequence[ReleasedRows]) -> str:
        name = PartName(
            self._manifest.next_release,
            min(release.first_seq for release in group),
            max(release.last_seq for release in group),
            group[0].late,
            self._format,
        )
        stem, _, ending = str(name).partition(".")
        return f"{stem}-{manifests.unique_name(self._epoch)}.{ending}"


@contextmanager
def _in_sink_words() -> Iterator[None]:
    """Translate the store's errors, and those of an unreadable manifest, into a sink's."""
    try:
        yield
    except StoreUnavailableError as error:
        raise SinkUnavailableError(str(error)) from error
    except (StoreRefusedError, StateError) as error:
        raise SinkError(str(error)) from error
