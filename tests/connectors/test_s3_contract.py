from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from gateway.config.connectors.s3 import S3SinkConfig
from gateway.sinks.base import Sink
from gateway.sinks.choose import SinkContext, make_sink
from infra.clock import SystemClock
from tests.connectors.s3_reader import read_results
from tests.connectors.s3_server import S3Server
from tests.connectors.sink_contract import HandoverContract, NotedHandover, SinkContract


class BucketSubject:
    exactly_once = True
    fences = True

    def __init__(self, server: S3Server, bucket: str, form: Literal["jsonl", "parquet"], folder: Path) -> None:
        self._server = server
        self._bucket = bucket
        self._form = form
        self._folder = folder

    def make(self, *, owner: str = "me", epoch: int = 1, handover: NotedHandover | None = None) -> Sink:
        config = S3SinkConfig(
            type="s3", bucket=self._bucket, prefix="out/mail", endpoint=self._server.endpoint, format=self._form
        )
        return make_sink(
            config, SinkContext("mail", owner, epoch, True, self._folder, SystemClock(), handover=handover)
        )

    async def rows(self) -> list[dict[str, Any]]:
        return read_results(self._server.client(), self._bucket, "out/mail", self._form)


class TestS3Sink(SinkContract, HandoverContract):
    @pytest.fixture(params=["jsonl", "parquet"])
    def subject(
        self, s3_server: S3Server, bucket: str, tmp_path: Path, request: pytest.FixtureRequest
    ) -> BucketSubject:
        return BucketSubject(s3_server, bucket, request.param, tmp_path)
