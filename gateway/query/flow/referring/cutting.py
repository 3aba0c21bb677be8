"""Which files can be cut into ranges, so that others read them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from gateway.config.models import FileSourceConfig
from gateway.config.words.fields import ROW_SUFFIXES

_PACKED: Final = (".gz", ".zst")
_LOOKED_AT: Final = 1_000
"""So many entries of a folder: it may have a million."""
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
            return why_not_one(_first_names(source.path)) if source.has_row_files else _MAILS
    except OSError:
        return ""  # reading tells
    return _MAILS if source.path.name.endswith(_MAIL) else why_not_one([source.path.name])


def _first_names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(each.name for each in islice(entries, _LOOKED_AT) if each.name.endswith(ROW_SUFFIXES))


def why_not_one(names: Sequence[str]) -> str:
    """Return why one of these files of rows cannot be cut; empty if all can."""
    for name in names:
        if name.endswith(_PACKED):
            return f"{name} is compressed, and cannot be cut into ranges"
        if name.endswith(".arrows"):
            return f"{name} is a stream of Arrow, and cannot be cut into ranges"
    return ""
