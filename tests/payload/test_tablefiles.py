"""The files of a table, packed as one version."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest
import zstandard

from infra.payload.tablefiles import TableError, pack, unpack


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def folder_of(tmp_path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (tmp_path / "table" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "table" / name).write_bytes(content)
    return tmp_path / "table"


FILES = {"year=2025/a.csv": b"1,x\n" * 1000, "year=2026/b.csv": b"2,y\n", "empty.csv": b""}


def test_what_spark_would_read_arrives_and_nothing_else(tmp_path: Path) -> None:
    table = folder_of(tmp_path, {**FILES, "_SUCCESS": b"", "year=2025/.a.csv.crc": b"crc"})
    packed = pack(table)
    assert packed.file_bytes == 4004
    assert len(packed.packed) < 500
    unpack(packed.fingerprint, packed.packed, packed.raw_bytes, tmp_path / "host")
    assert contents(tmp_path / "host" / packed.fingerprint) == FILES
    unpack(packed.fingerprint, packed.packed, packed.raw_bytes, tmp_path / "host")
    assert [each.name for each in (tmp_path / "host").iterdir()] == [packed.fingerprint]


def test_a_version_changes_with_a_byte_and_with_a_name_and_not_with_a_time(tmp_path: Path) -> None:
    table = folder_of(tmp_path, FILES)
    first = pack(table).fingerprint
    (table / "empty.csv").touch()
    assert pack(table).fingerprint == first
    (table / "empty.csv").rename(table / "c.csv")
    renamed = pack(table).fingerprint
    (table / "c.csv").write_bytes(b"3,z\n")
    assert len({first, renamed, pack(table).fingerprint}) == 3


def test_too_large_missing_and_empty_are_said(tmp_path: Path) -> None:
    table = folder_of(tmp_path, FILES)
    assert pack(table, 4004).file_bytes == 4004
    with pytest.raises(TableError, match="table is too large: the tables of a query may take 64 MiB"):
        pack(table, 4003)
    with pytest.raises(TableError, match=r"gone\.csv cannot be read: No such file"):
        pack(tmp_path / "gone.csv")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(TableError, match="nothing has no files"):
        pack(tmp_path / "nothing")


def test_a_damaged_version_is_not_kept(tmp_path: Path) -> None:
    packed = pack(folder_of(tmp_path, FILES))
    bad = bytearray(packed.packed)
    bad[len(bad) // 2] ^= 1
    for content, raw_bytes in [(bytes(bad), packed.raw_bytes), (packed.packed, packed.raw_bytes + 1), (b"x", 1)]:
        with pytest.raises(TableError):
            unpack(packed.fingerprint, content, raw_bytes, tmp_path / "host")
    with pytest.raises(TableError, match="too long"):
        unpack(packed.fingerprint, packed.packed, 1 << 40, tmp_path / "host")
    assert contents(tmp_path / "host") == {}


@pytest.mark.parametrize("name", ["../out.csv", "/tmp/out.csv", "a/../../out.csv"])
def test_no_file_is_written_outside_its_folder(tmp_path: Path, name: str) -> None:
    raw = msgspec.msgpack.encode([("in.csv", b"1"), (name, b"2")])
    fingerprint = hashlib.sha256(raw).hexdigest()
    with pytest.raises(TableError, match="outside its folder"):
        unpack(fingerprint, zstandard.compress(raw), len(raw), tmp_path / "host")
    assert contents(tmp_path) == {}
