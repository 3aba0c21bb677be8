"""A reader of the S3 sink's parts that knows only the sink's documentation."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pyarrow.parquet as pq


def read_results(client: Any, bucket: str, prefix: str, form: str = "jsonl") -> list[dict[str, Any]]:
    """Follow the manifest with only boto3, as a user would who has read the documentation."""
    listed = client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/manifest/").get("Contents", [])
    if not listed:
        return []

    def load(key: str) -> bytes:
        body: bytes = client.get_object(Bucket=bucket, Key=f"{prefix}/{key}")["Body"].read()
        return body

    manifest = json.loads(load("manifest/" + max(item["Key"] for item in listed).rpartition("/")[2]))
    names, page = manifest["parts"], manifest["page"]
    while page:
        older = json.loads(load(f"pages/{page}"))
        names, page = older["parts"] + names, older["previous"]
    rows: list[dict[str, Any]] = []
    for name in names:
        data = load(f"parts/{name}")
        if form == "parquet":
            rows += pq.read_table(BytesIO(data)).to_pylist()
        else:
            rows += [json.loads(line) for line in data.splitlines()]
    return rows
