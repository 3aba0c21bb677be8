from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from engines.query import known as query_module
from engines.query.code import query_hash
from engines.query.known import KnownQueries, KnownQuery
from infra.messages import KeyPart, OpenQuery

SPEC = OpenQuery(query="q", epoch=1, schema_ddl="id STRING", sql="SELECT id FROM events", checkpoint_dir="one")


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[OpenQuery]:
    """The specs that were analysed again."""
    seen: list[OpenQuery] = []

    def understand(base: Any, spec: OpenQuery) -> KnownQuery:
        seen.append(spec)
        nothing = cast("Any", None)
        return KnownQuery(spec, base, nothing, nothing, nothing, nothing, nothing, query_hash(spec))

    monkeypatch.setattr(query_module, "understand", understand)
    return seen


def test_a_query_that_is_opened_again_is_not_analysed_again_and_is_warm_once_it_ran(analysed: list[OpenQuery]) -> None:
    known = KnownQueries()
    first = known.understand(cast("Any", None), SPEC)
    assert not first.warm
    known.ran(first)
    again = msgspec.structs.replace(SPEC, epoch=2, checkpoint_dir="two", batch_ends=(3, 5))
    second = known.understand(cast("Any", None), again)
    assert (second.spec, second.warm) == (again, True)
    assert analysed == [SPEC]


@pytest.mark.parametrize(
    "change",
    [
        {"sql": "SELECT 1 AS id FROM events"},
        {"schema_ddl": "id INT"},
        {"query": "other"},
        {"part": KeyPart(key="id", index=0, parts=2)},
    ],
)
def test_another_definition_is_analysed_anew_and_is_not_warm(analysed: list[OpenQuery], change: dict[str, Any]) -> None:
    known = KnownQueries()
    known.ran(known.understand(cast("Any", None), SPEC))
    changed = msgspec.structs.replace(SPEC, **change)
    assert not known.understand(cast("Any", None), changed).warm
    assert analysed == [SPEC, changed]


def test_changed_code_of_a_function_is_analysed_anew(
    analysed: list[OpenQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = KnownQueries()
    known.ran(known.understand(cast("Any", None), SPEC))
    monkeypatch.setattr(query_module, "query_hash", lambda _: "of other code")
    assert not known.understand(cast("Any", None), SPEC).warm
    assert len(analysed) == 2
