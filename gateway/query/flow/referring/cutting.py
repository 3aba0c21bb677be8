"""Which files can be cut into ranges, so that others read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.config.models import FileSourceConfig
from gateway.config.words.fields import ROW_SUFFIXES

_PACKED: Final = (".gz", ".zst")
_MAIL: Final = (".mbox", ".mbox.gz")
_MAILS: Final = "its source is a mailbox, which is read as a whole"


def why_not_cut(source: FileSourceConfig) -> str:
    """Return why the files of a source cannot come by reference; empty if they can, as far as is known now.

    Files that appear in a folder later are looked at when they are read.
    """
    if source.replay is not None:
        return "its source is replayed, and the gateway keeps the time"
    try:
        if source.path.is_dir():
            names = sorted(each.name for each in source.path.iterdir() if each.name.endswith(ROW_SUFFIXES))
            return _MAILS if not (names or source.follow) else why_not_one(names)
    except OSError:
        return ""  # reading tells
    return _MAILS if source.path.name.endswith(_MAIL) else why_not_one([source.path.name])


def why_not_one(names: Sequence[str]) -> str:
    """Return why one of these files of rows cannot be cut; empty if all can."""
    for name in names:
        if name.endswith(_PACKED):
            return f"{name} is compressed, and cannot be cut into ranges"
        if name.endswith(".arrows"):
            return f"{name} is a stream of Arrow, and cannot be cut into ranges"
    return ""
