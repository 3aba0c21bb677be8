"""Creates the configured object store."""

from __future__ import annotations

from gateway.config.connectors.s3 import BucketConfig, BucketFolderConfig
from infra.objectstore.base import ForeignObjects, ObjectStore


def make_store(config: BucketConfig | BucketFolderConfig, *, wait_s: float | None = None) -> ObjectStore:
    """Return the store that ``config`` names.

    Args:
        config: the config's section.
        wait_s: how long each try waits, for callers that prefer an early failure; None: the default.

    Raises:
        StoreRefusedError: it can never work with these settings.
        StoreUnavailableError: a folder's disk fails.
    """
    if isinstance(config, BucketFolderConfig):
        from infra.objectstore.folder import FolderStore

        return FolderStore(config.folder)
    from infra.objectstore.s3 import S3Store  # a slow import that few gateways need

    waits = {} if wait_s is None else {"connect_s": wait_s, "read_s": wait_s}
    return S3Store(config.bucket, prefix=config.prefix, endpoint=config.endpoint, region=config.region, **waits)


def make_objects(config: BucketConfig) -> ForeignObjects:
    """Return the objects that other programs write below the prefix that ``config`` names.

    Raises:
        StoreRefusedError: they can never be read with these settings.
    """
    from infra.objectstore.s3 import S3Store  # a slow import that few gateways need

    return S3Store(config.bucket, prefix=config.prefix, endpoint=config.endpoint, region=config.region)
