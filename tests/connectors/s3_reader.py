"""A reader of the S3 sink's parts that knows only the sink's documentation."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pyarrow.parquet as pq


def part_names(client: Any, bucket: str, prefix: str) -> list[str]:
    """Return the names of all visible parts in order: what the latest manifest and its pages name."""
    listed = client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/manifest/").get("Contents", [])
    if not listed:
        return []

    def load(name: str) -> Any:
        return json.loads(client.get_object(Bucket=bucket, Key=f"{prefix}/{name}")["Body"].read())

    manifest = load("manifest/" + max(item["Key"] for item in listed).rpartition("/")[2])
    names: list[str] = manifest["parts"]
    page = manifest["page"]
    while page:
        older = load(f"pages/{page}")
        names, page = older["parts"] + names, older["previous"]
    return names


def read_results(client: Any, bucket: str, prefix: str, form: str = "jsonl") -> list[dict[str, Any]]:
    """Follow the manifest with only boto3, as a user would who has read the documentation."""
    rows: list[dict[str, Any]] = []
    for name in part_names(client, bucket, prefix):
        data = client.get_object(Bucket=bucket, Key=f"{prefix}/parts/{name}")["Body"].read()
        if form == "parquet":
            rows += pq.read_table(BytesIO(data)).to_pylist()
        else:
            rows += [json.loads(line) for line in data.splitlines()]
    return rows
