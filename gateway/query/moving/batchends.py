"""The ends of the micro-batches of a query that is on a VM, on disk before the sink has their results.

If the VM is lost, the query continues at home with an older checkpoint, and must repeat these micro-batches with the
same limits: only then the sink recognises their results.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from infra.statefiles import write_atomically
from policies.signals import HOME


class BatchEnds:
    """One file with an end (seq, exclusive) in each line. All methods block.

    Args:
        path: the file's; it exists from a query's first move to a VM on.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def read(self) -> tuple[int, ...]:
        """Return the ends; a line that was cut off by a crash has no results in the sink."""
        return ends_in(self._content())

    def append(self, ends: Sequence[int]) -> None:
        """Add ends; return when they are on disk.

        Raises:
            OSError: the disk fails. It may be called again.
        """
        with self._lock, self._path.open("ab") as file:
            file.truncate(whole_bytes(self._content()))
            file.write(lines_of(ends))
            file.flush()
            os.fsync(file.fileno())

    def keep_after(self, seq: int) -> None:
        """Forget the micro-batches that end at ``seq`` or before: a checkpoint at home has them. Create the file."""
        with self._lock:
            write_atomically(self._path, lines_of(ends_after(self._content(), seq)))

    def _content(self) -> bytes:
        return self._path.read_bytes() if self._path.exists() else b""


def ends_in(content: bytes) -> tuple[int, ...]:
    """Return the ends in a file; a line that was cut off does not count."""
    *lines, _ = content.split(b"\n")
    return tuple(int(line) for line in lines)


def whole_bytes(content: bytes) -> int:
    """Return the size of a file without a line that was cut off."""
    return content.rfind(b"\n") + 1


def lines_of(ends: Iterable[int]) -> bytes:
    """Return the lines of ends."""
    return b"".join(b"%d\n" % end for end in ends)


def ends_after(content: bytes, seq: int) -> tuple[int, ...]:
    """Return the ends in a file of the micro-batches that a checkpoint up to ``seq`` does not have."""
    return tuple(end for end in ends_in(content) if end > seq)


def needed_after(places: Sequence[str], resume_seqs: Sequence[int], home_seqs: Sequence[int]) -> int:
    """Return the seq up to which no end is needed any more once the parts of a query are open.

    Args:
        places: where each part is open.
        resume_seqs: where each continues there.
        home_seqs: where each would continue at home, if it is on a VM and the VM is lost.
    """
    each = zip(places, resume_seqs, home_seqs, strict=True)
    return min(resume_seq if place == HOME else min(resume_seq, home_seq) for place, resume_seq, home_seq in each)
