"""A journal in a separate process, which appends and releases until it is killed.

Usage: python journal_process.py FOLDER [check]. The file ``answered`` gets the number of each append that was
answered. The file ``released`` gets the number before which all records may be removed. Each start compares the
journal with these files; ``check`` does only that.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from pathlib import Path

from gateway.connectors.position import Position
from gateway.journal.journal import Journal
from infra.statefiles import write_atomically
from tests.connectors.journal_data import everything, opened

AT_ONCE = 4
_NUMBER = struct.Struct("<Q")


def verify(folder: Path, records: list[bytes], first_record: int) -> int:
    """Return the number of the next append; each append has three records that contain its number."""
    numbers = [_NUMBER.unpack_from(record)[0] for record in records]
    known = folder / "answered"
    answered = [int(line) for line in known.read_bytes().split(b"\n")[:-1]] if known.exists() else []
    assert first_record % 3 == 0, "files were given up in the middle of an append"
    assert len(numbers) % 3 == 0, "an append is there in part"
    appends = numbers[::3]
    assert numbers == [number for number in appends for _ in range(3)]
    assert len(set(appends)) == len(appends), "an append is there twice"
    released = folder / "released"
    needed = int(released.read_text()) if released.exists() else 0
    missing = {number for number in answered if number >= needed} - set(appends)
    assert not missing, f"answered, but not there: {sorted(missing)[:5]}"
    return max([*appends, *answered], default=-1) + 1


async def main(folder: Path, *, check: bool) -> None:
    async with opened(folder / "journal", segment_bytes=2000, limit_bytes=200_000) as journal:
        records = await everything(journal)
        next_number = verify(folder, records, journal.first_record)
        if check:
            return
        with (folder / "answered").open("ab", buffering=0) as answers:
            while True:
                group = range(next_number, next_number + AT_ONCE)
                await asyncio.gather(*(append(journal, number, answers.fileno()) for number in group))
                next_number += AT_ONCE
                if next_number % 20 == 0:
                    to = await journal.read(Position(max(journal.first_record, journal.next_record - 60)), 1, 1)
                    assert to is not None
                    number = _NUMBER.unpack_from(to.records[0])[0]
                    write_atomically(folder / "released", b"%d" % number)
                    await journal.release(Position(to.start.record - to.start.record % 3))


async def append(journal: Journal, number: int, answers: int) -> None:
    record = _NUMBER.pack(number) + os.urandom(30)
    await journal.append([record] * 3)
    os.write(answers, b"%d\n" % number)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), check=len(sys.argv) > 2))
