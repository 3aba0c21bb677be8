"""``spillway lab``: its error if there can be no lab."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import main


def test_only_root_can_have_a_lab(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = CliRunner().invoke(main, ["lab", "up", "--folder", str(tmp_path)])
    assert done.exit_code == 1
    assert "run it as root" in caplog.text + done.output
