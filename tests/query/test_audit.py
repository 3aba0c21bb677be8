from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.query.audit import AuditLog

FORMS = {"id": "clear", "text": "encrypted"}


def test_a_line_says_what_may_leave_for_whom(tmp_path: Path) -> None:
    AuditLog(tmp_path / "audit").note(1_700_000_000.25, "q", "vm1", 3, FORMS)
    (path,) = (tmp_path / "audit").iterdir()
    assert json.loads(path.read_text()) == {
        "at": "2023-11-14T22:13:20.250+00:00",
        "query": "q",
        "vm": "vm1",
        "epoch": 3,
        "fields": FORMS,
    }


def test_each_gateway_begins_a_file_and_the_oldest_are_removed(tmp_path: Path) -> None:
    for gateway in range(3):
        log = AuditLog(tmp_path, file_bytes=200, log_bytes=800)
        for number in range(4):
            log.note(0.0, "q", f"vm{gateway}-{number}", 1, FORMS)
    files = sorted(tmp_path.iterdir())
    lines = [json.loads(line)["vm"] for path in files for line in path.read_text().splitlines()]
    assert lines[-4:] == ["vm2-0", "vm2-1", "vm2-2", "vm2-3"]
    assert "vm0-0" not in lines
    assert sum(path.stat().st_size for path in files) <= 800


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("")
    with pytest.raises(OSError, match="audit"):
        AuditLog(tmp_path / "audit").note(0.0, "q", "vm1", 1, FORMS)
