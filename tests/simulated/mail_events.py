"""Generated mail as events, and plans of queries that read some of it."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pyarrow as pa

from engines.email.generator import generate_mail
from infra.messages import Predicate, QueryPlan

TEXTS = pa.list_(pa.string())
MAIL = pa.schema(
    [
        ("message_id", pa.string()),
        ("sent", pa.timestamp("us", "UTC")),
        ("sender", pa.string()),
        *((name, TEXTS) for name in ("to", "cc", "bcc")),
        ("subject", pa.string()),
        ("body", pa.string()),
    ]
)
INSIDE = Predicate(op="ends_with", column=("sender",), value="@enron.com")


@cache
def mails() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([msgspec.structs.asdict(mail) for mail in generate_mail(2600, 5)], schema=MAIL)


def plan(schema: pa.Schema, read: tuple[str, ...], *predicates: Predicate, **more: Any) -> QueryPlan:
    needed = pa.schema([schema.field(name) for name in read])
    known = {"switch_class": "stateless", "switchable": True, "narrow": True, "predicates": predicates}
    return QueryPlan(**{**known, "needed_schema": needed.serialize().to_pybytes(), **more})
