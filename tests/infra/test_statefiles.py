from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra.statefiles import FORMAT_VERSION, StateError, owned, write_atomically


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        if step == "fsync":
            broken.setattr(os, "fsync", fail)
        elif step == "replace":
            broken.setattr(Path, "replace", fail)
        else:
            broken.setattr(Path, "open", fail)
        with pytest.raises(OSError, match="Input/output"):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    write_atomically(path, b"newer")
    assert path.read_bytes() == b"newer"


def test_a_state_dir_has_one_gateway_at_a_time(tmp_path: Path) -> None:
    second = owned(tmp_path / "state")
    with owned(tmp_path / "state"), pytest.raises(StateError, match="in use by another gateway"):
        second.__enter__()
    with owned(tmp_path / "state"):
        assert (tmp_path / "state" / "format").read_text() == f"{FORMAT_VERSION}\n"


def test_state_of_another_format_is_refused(tmp_path: Path) -> None:
    with owned(tmp_path):
        pass
    (tmp_path / "format").write_text("99\n")
    with pytest.raises(StateError, match="has format 99"), owned(tmp_path):
        pass
