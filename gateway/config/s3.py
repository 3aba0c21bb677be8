"""The config's sections about S3 and what speaks like it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gateway.config.fields import Section


class Bucket(Section):
    """A place in an object store; who we are is found as boto3 finds it (environment, ~/.aws, instance role).

    Attributes:
        bucket: it must be there.
        prefix: before the name of each object.
        endpoint: URL of a store that is not Amazon's.
        region: of the bucket.
    """

    bucket: str = Field(min_length=3)
    prefix: str = ""
    endpoint: str | None = Field(default=None, pattern=r"https?://\S+")
    region: str | None = None


class S3Sink(Bucket):
    """Results in parts, made visible by a manifest."""

    type: Literal["s3"]
    format: Literal["jsonl", "parquet"] = "jsonl"
