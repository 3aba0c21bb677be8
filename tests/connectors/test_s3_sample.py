"""``spillway try`` over objects."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from gateway.views.tryout.sampling import read_sample
from tests.connectors.s3_server import S3Server
from tests.tryout.try_config import config_with, query

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int32())])


def test_objects_are_read_and_nothing_is_left_of_them(tmp_path: Path, s3_server: S3Server, bucket: str) -> None:
    for name, first in (("in/a.jsonl", 0), ("in/b.jsonl", 5), ("other.jsonl", 9)):
        body = "".join(f'{{"id": "e", "n": {n}}}\n' for n in range(first, first + 3)).encode()
        s3_server.client().put_object(Bucket=bucket, Key=name, Body=body)
    place = {"bucket": bucket, "prefix": "in", "endpoint": s3_server.endpoint, "region": "us-east-1"}
    config = config_with(tmp_path, words=query(source={"type": "s3", "follow": True, **place}))
    sample = read_sample(config, "words", SCHEMA, {}, tmp_path / "work", 4)
    assert (sample.events.column("n").to_pylist(), sample.more) == ([0, 1, 2, 5], True)
    assert read_sample(config, "words", SCHEMA, {}, tmp_path / "again", 100).events.column("n").to_pylist() == [
        0,
        1,
        2,
        5,
        6,
        7,
    ]
    assert not (tmp_path / "state").exists()
    assert [each["Key"] for each in s3_server.client().list_objects(Bucket=bucket)["Contents"]] == [
        "in/a.jsonl",
        "in/b.jsonl",
        "other.jsonl",
    ]
