"""The servers of the connectors' tests."""

from tests.connectors.conftest import bucket, s3_server

__all__ = ["bucket", "s3_server"]
