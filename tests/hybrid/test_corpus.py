"""Queries of all kinds on two real engine hosts: with random moves the same rows as at home, or a reason."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.figures import Scale
from tests.hybrid.cases import CASES, StreamCase
from tests.hybrid.places import two_places
from tests.hybrid.verdicts import Jury, Outcome

# What a sample needs: so many queries that split, that move, that stay at home and that are refused.
DRAWN: tuple[tuple[tuple[str, ...], Outcome], ...] = (
    (("UDFs", "explode", "joins with tables"), "identical"),
    (("tumbling windows", "sliding windows", "session windows"), "identical"),
    (("joins of streams", "duplicates", "several operators in a row"), "identical"),
    (("running aggregates", "transformWithState in pandas", "top-k and limits"), "identical"),
    (("depends on the machine",), "stays home"),
    (("subqueries and set operations",), "refused"),
)


def sample(draw: random.Random) -> Sequence[tuple[StreamCase, Outcome]]:
    """Draw a query for each outcome and group of kinds."""
    own = [case for case in CASES if not case.name.startswith("class-")]
    found = []
    for kinds, outcome in DRAWN:
        chosen = CASES if outcome == "refused" else own
        found.append((draw.choice([case for case in chosen if case.kind in kinds]), outcome))
    return found


@pytest.mark.timeout(300)
async def test_queries_in_two_places_have_the_same_results(spark: SparkSession, tmp_path: Path, scale: Scale) -> None:
    print(f"seed {scale.seed}")
    drawn = sample(random.Random(scale.seed))
    async with two_places(tmp_path) as places:
        jury = Jury(tmp_path / "queries", places, spark, scale.seed, losses=False)
        found = await jury.judge_all([case for case, _ in drawn], together=len(drawn))
    assert [each.outcome for each in found] == [outcome for _, outcome in drawn], "\n".join(map(str, found))
