"""The objects below an S3 sink's prefix, and how to read them.

::

    manifest/<number>   JSON; the highest number is the manifest, older ones may be deleted at any time
    pages/<name>        JSON; names of older parts, and of the page before it
    parts/<name>        results

Only parts that the manifest names, itself or through its pages, are results: others are being written, or left over
from a crash. To read everything: list ``manifest/`` and get the last; follow ``page`` and each page's ``previous`` to
the end. The pages' parts from the oldest page on, then the manifest's own ``parts``, are the results in order of
release.
"""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

from infra.objectstore.base import ObjectStore
from infra.objectstore.versions import Version, Versions
from infra.statefiles import StateError

FOLDER: Final = "manifest"
PAGES: Final = "pages"
PARTS: Final = "parts"
PAGE_PARTS: Final = 256
_PAGE_BYTES_MAX: Final = 1_000_000


class S3Manifest(msgspec.Struct, frozen=True):
    """The record that makes results visible.

    Attributes:
        owner: the state that numbers the seqs; another state's seqs mean other events.
        epoch: counts the gateways that opened that state.
        writer: random; identifies the writer of this version.
        next_release: number of the next part.
        committed: the seq intervals whose results are committed.
        parts: names of the latest parts, at most ``PAGE_PARTS``.
        page: name of the page with the earlier parts, or empty.
    """

    owner: str
    epoch: int
    writer: str
    next_release: int
    committed: list[tuple[int, int]]
    parts: list[str]
    page: str = ""


class Page(msgspec.Struct, frozen=True):
    """Names of ``PAGE_PARTS`` parts, and of the page with the earlier ones; never changed."""

    previous: str
    parts: list[str]


def parse(version: Version, where: str) -> S3Manifest:
    """Return the manifest in a version.

    Raises:
        StateError: it is not a manifest.
    """
    try:
        return msgspec.json.decode(version.data, type=S3Manifest)
    except msgspec.DecodeError as error:
        raise StateError(
            f"{where}: {FOLDER}/{version.number:012d} cannot be read ({error}): choose another prefix, or restore it"
        ) from error


def unique_name(epoch: int) -> str:
    """Return a name that no other attempt has; it contains the epoch, which decides who may delete the object."""
    return f"{epoch:010d}-{secrets.token_hex(6)}"


def epoch_of(name: str) -> int:
    """Return the epoch in the name of a part or page, -1 if it is not one of ours."""
    fields = name.partition(".")[0].split("-")
    return int(fields[-2]) if len(fields) >= 3 and fields[-2].isdigit() else -1


def visible_parts(store: ObjectStore) -> list[str]:
    """Return the names of all parts that are results, in order of release, as objects of ``store`` (at the prefix).

    Raises:
        StateError: the objects were not written by an S3 sink.
        StoreUnavailableError: or StoreRefusedError.
    """
    latest = Versions(store, FOLDER).latest()
    if latest is None:
        return []
    manifest = parse(latest, str(store))
    groups, name = [manifest.parts], manifest.page
    while name:
        stored = store.get(f"{PAGES}/{name}", bytes_max=_PAGE_BYTES_MAX)
        if stored is None:
            raise StateError(f"{store}: {PAGES}/{name} is missing: restore it, or the results before it are lost")
        page = msgspec.json.decode(stored.data, type=Page)
        groups.append(page.parts)
        name = page.previous
    return [f"{PARTS}/{part}" for group in reversed(groups) for part in group]
