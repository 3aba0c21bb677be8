"""Fixtures for the connectors' tests: the real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.connectors.s3_server import CREDENTIALS, S3Server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server that speaks S3 for the whole session: use your own buckets, and leave it running."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket, and the credentials for it in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return s3_server.make_bucket()
