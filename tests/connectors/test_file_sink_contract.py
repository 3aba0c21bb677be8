from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.file_sinks import FolderSubject
from tests.connectors.sink_contract import SinkContract


class TestFileSink(SinkContract):
    @pytest.fixture(params=["jsonl", "parquet"])
    def subject(self, tmp_path: Path, request: pytest.FixtureRequest) -> FolderSubject:
        return FolderSubject(tmp_path / "out", request.param)
