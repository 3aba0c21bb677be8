"""Objects in S3, or in a compatible store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from botocore.exceptions import HTTPClientError as TransportError

from infra.objectstore.base import (
    ConflictError,
    ListedObject,
    ReplacedError,
    Stored,
    StoreRefusedError,
    StoreUnavailableError,
    checked_name,
)

_TRIES: Final = 3
_CONNECT_S: Final = 5.0
_READ_S: Final = 20.0
_PIECE_BYTES: Final = 1 << 18
_ABSENT: Final = {"NoSuchKey", "404"}
_CONFLICT: Final = {"PreconditionFailed", "412"}
_AGAIN: Final = {
    "ConditionalRequestConflict",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "RequestTimeTooSkewed",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
_BAD_CONFIG: Final = (NoCredentialsError, PartialCredentialsError)
T = TypeVar("T")


class S3Store:
    """An ``ObjectStore`` below a prefix of a bucket, and ``ForeignObjects`` there; boto3 finds the credentials.

    Args:
        bucket: it must exist.
        prefix: precedes every name, without a slash at its end; may be empty.
        endpoint: URL of a store other than Amazon's.
        region: of the bucket.
        connect_s: how long each try waits for a connection.
        read_s: how long each try waits for an answer.
    """

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "",
        endpoint: str | None = None,
        region: str | None = None,
        connect_s: float = _CONNECT_S,
        read_s: float = _READ_S,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._where = f"s3://{bucket}/{self._prefix}" + (f" at {endpoint}" if endpoint else "")
        config = Config(
            connect_timeout=connect_s,
            read_timeout=read_s,
            retries={"total_max_attempts": _TRIES, "mode": "standard"},
            # Compatible stores may not know the newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            session = boto3.session.Session()
            self._client: Any = session.client("s3", endpoint_url=endpoint, region_name=region, config=config)
        except (BotoCoreError, ValueError) as error:
            raise StoreRefusedError(f"{self._where}: {error}: correct the region, the endpoint or ~/.aws") from error

    def __str__(self) -> str:
        return self._where

    def get(self, name: str, *, bytes_max: int) -> Stored | None:
        """See ``ObjectStore.get``."""

        def read() -> Stored:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key(name))
            with answer["Body"] as body:
                # Read one byte more than allowed: it shows that the object is too large, whatever the header says.
                return Stored(body.read(bytes_max + 1), answer["ETag"])

        try:
            stored = self._asked(name, read)
        except _AbsentError:
            return None
        if len(stored.data) > bytes_max:
            raise StoreRefusedError(f"{self._where}{name} is larger than {bytes_max} bytes: another program wrote it")
        return stored

    def put(self, name: str, data: bytes) -> str:
        """See ``ObjectStore.put``."""
        return self._put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> str:
        """See ``ObjectStore.put_if_absent``."""
        return self._put(name, data, IfNoneMatch="*")

    def put_if_match(self, name: str, data: bytes, etag: str) -> str:
        """See ``ObjectStore.put_if_match``."""
        try:
            return self._put(name, data, IfMatch=etag)
        except _AbsentError as error:
            raise ConflictError(f"{self._where}{name} is gone") from error

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """See ``ObjectStore.list``."""
        for found in self._entries(prefix, {"StartAfter": self._prefix + after} if after else {}):
            yield found.name

    def listed(self) -> Iterator[ListedObject]:
        """See ``ForeignObjects.listed``."""
        return self._entries("", {})

    def pieces(self, found: ListedObject, *, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """See ``ForeignObjects.pieces``."""
        asked = {"Bucket": self._bucket, "Key": self._prefix + found.name, "IfMatch": found.etag}
        if start or end is not None:
            asked["Range"] = f"bytes={start}-" + ("" if end is None else str(end - 1))
        try:
            answer = self._asked(found.name, lambda: self._client.get_object(**asked))
        except _AbsentError as error:
            raise ReplacedError("no longer exists") from error
        except ConflictError as error:
            raise ReplacedError("was replaced after it was listed") from error
        with answer["Body"] as body:
            while piece := self._asked(found.name, lambda: body.read(_PIECE_BYTES)):
                yield piece

    def _entries(self, prefix: str, start: dict[str, str]) -> Iterator[ListedObject]:
        while True:
            asked = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, **start}
            page = self._asked(prefix, lambda asked=asked: self._client.list_objects_v2(**asked))  # type: ignore[misc]
            for entry in page.get("Contents", ()):
                name = str(entry["Key"]).removeprefix(self._prefix)
                yield ListedObject(name, int(entry["Size"]), str(entry["ETag"]))
            if not page.get("IsTruncated"):
                return
            start = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, name: str) -> None:
        """See ``ObjectStore.delete``."""
        self._asked(name, lambda: self._client.delete_object(Bucket=self._bucket, Key=self._key(name)))

    def presigned_url(self, name: str, *, valid_s: int) -> str:
        """Return a URL with which anybody can read an object for ``valid_s``; the object may not exist.

        Raises:
            StoreRefusedError: no credentials were found.
        """
        asked = {"Bucket": self._bucket, "Key": self._key(name)}
        return str(
            self._asked(
                name, lambda: self._client.generate_presigned_url("get_object", Params=asked, ExpiresIn=valid_s)
            )
        )

    def _put(self, name: str, data: bytes, **condition: str) -> str:
        answer = self._asked(
            name, lambda: self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=data, **condition)
        )
        return str(answer["ETag"])

    def _key(self, name: str) -> str:
        return self._prefix + checked_name(name)

    def _asked(self, name: str, ask: Callable[[], T]) -> T:
        """Return what ``ask`` returns; translate its errors."""
        try:
            return ask()
        except ClientError as error:
            raise self._in_words(name, error) from error
        except _BAD_CONFIG as error:
            text = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or give this machine a role"
            raise StoreRefusedError(f"{self._where}: no credentials were found: {text}") from error
        except (TransportError, BotoCoreError, OSError) as error:
            raise StoreUnavailableError(f"{self._where} does not answer: {error}") from error

    def _in_words(self, name: str, error: ClientError) -> Exception:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code == "NoSuchBucket":
            return StoreRefusedError(
                f"{self._where}: the bucket does not exist: create it, or correct bucket in the config"
            )
        if code in _ABSENT:
            return _AbsentError(name)
        if code in _CONFLICT:
            return ConflictError(f"{self._where}{name}: another writer was first")
        if code in _AGAIN or status >= 500 or status in (408, 429):
            return StoreUnavailableError(f"{self._where} answers {code or status}")
        if status in (401, 403):
            text = "check that the credentials are right, and that they may list, get, put and delete there"
            return StoreRefusedError(f"{self._where} denies access ({code}): {text}")
        return StoreRefusedError(f"{self._where}{name}: {error}")


class _AbsentError(Exception):
    """The object does not exist."""
