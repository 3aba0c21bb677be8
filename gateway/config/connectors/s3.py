"""The config's sections about S3 and compatible stores."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gateway.config.words.fields import AnyPath, Section, Size


def _usable_prefix(text: str) -> str:
    parts = text.strip("/").split("/") if text.strip("/") else []
    if any(part in ("", ".", "..") for part in parts) or len(text) > 400:
        raise ValueError(f'"{text}" is not a prefix; write words joined by single slashes, as in results/mail')
    return "/".join(parts)


Prefix = Annotated[str, AfterValidator(_usable_prefix)]


class BucketConfig(Section):
    """A place in an object store. boto3 finds the credentials (environment, ~/.aws, instance role).

    Attributes:
        bucket: the name of the bucket, which must exist.
        prefix: what comes before the name of each object.
        endpoint: URL of a store other than Amazon's.
        region: the region of the bucket. Default: as boto3 finds it.
    """

    bucket: str = Field(min_length=3, max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", examples=["my-results"])
    prefix: Prefix = Field(default="", examples=["results/mail"])
    endpoint: str | None = Field(default=None, pattern=r"^https?://\S+$", examples=["https://store.example"])
    region: str | None = Field(default=None, examples=["eu-west-1"])


class BucketFolderConfig(Section):
    """A folder that serves as an object store: on one machine, or mounted by several.

    Attributes:
        folder: the path of the folder.
    """

    folder: AnyPath = Field(examples=["/mnt/shared/fleet"])


class S3SinkConfig(BucketConfig):
    """Results in parts, made visible by a manifest.

    Attributes:
        format: the format of the parts.
    """

    type: Literal["s3"]
    format: Literal["jsonl", "parquet"] = "jsonl"


class S3SourceConfig(BucketConfig):
    """Rows from the objects below a prefix, in the order of their names; the formats are those of files.

    Attributes:
        follow: also read objects that appear later; the source then never ends.
        object_limit_bytes: a larger object is refused. One object at a time is copied to the state_dir.
    """

    type: Literal["s3"]
    follow: bool = False
    object_limit_bytes: Annotated[Size, Field(ge=2**20)] = Field(default=2**33, alias="object_limit")


def shared_prefix(one: BucketConfig, other: BucketConfig) -> bool:
    """Return whether the objects of both may collide: same bucket, and one prefix is at or below the other."""
    if (one.bucket, one.endpoint) != (other.bucket, other.endpoint):
        return False
    short, long = sorted((one.prefix, other.prefix), key=len)
    return not short or long == short or long.startswith(short + "/")
