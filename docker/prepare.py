"""Creates the topics in the arguments and the bucket ``BUCKET``, if they do not exist yet."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import boto3
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from botocore.exceptions import ClientError

WITHIN_S = 60.0
TOPIC_EXISTS = 36


async def make_topics(brokers: str, names: list[str]) -> None:
    """Create topics of two partitions each.

    Raises:
        RuntimeError: the broker refuses one.
    """
    client = AIOKafkaAdminClient(bootstrap_servers=brokers)
    async with asyncio.timeout(WITHIN_S):
        await client.start()
        try:
            answer: Any = await client.create_topics([NewTopic(name, 2, 1) for name in names])
        finally:
            await client.close()
    refused = [error for error in answer.topic_errors if error[1] not in (0, TOPIC_EXISTS)]
    if refused:
        raise RuntimeError(f"{brokers} does not create the topics: {refused}")


def make_bucket(endpoint: str, name: str) -> None:
    """Create a bucket. If it exists already, it is assumed to be ours."""
    client = boto3.client("s3", endpoint_url=endpoint)
    try:
        client.create_bucket(Bucket=name)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
            raise


if __name__ == "__main__":
    asyncio.run(make_topics(os.environ["KAFKA"], sys.argv[1:]))
    make_bucket(os.environ["S3_ENDPOINT"], os.environ["BUCKET"])
