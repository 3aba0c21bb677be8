"""Overtaking over one to six lanes that come and go: real Spark finds what one finds in the whole list."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec import structs
from pyspark.sql import SparkSession

from engines.isolation.verdicts import Verdicts
from engines.query.known import understand
from engines.query.selections.expansion import expanded
from engines.traffic.overtaking import SELECTIONS, SQL
from engines.traffic.vehicles import SCHEMA_DDL, Passage, generate_passages
from gateway.config.sections.selections import SelectionsConfig
from gateway.simulate.options import SelectionLoad
from gateway.simulate.runs.world import World
from infra.messages import OpenQuery
from tests.workloads.overtaking_oracle import overtakings
from tests.worlds.selection_worlds import static_world


class Feed:
    """Returns the next passages, as many as a world asks for."""

    def __init__(self, passages: list[Passage], schema: pa.Schema) -> None:
        self._passages = passages
        self._schema = schema
        self.count = 0

    def __call__(self, events: int, _until_s: float) -> pa.RecordBatch:
        """Return them as rows."""
        some = self._passages[self.count : self.count + events]
        assert len(some) == events
        self.count += events
        return pa.RecordBatch.from_pylist([structs.asdict(each) for each in some], schema=self._schema)


@pytest.mark.parametrize(("vms", "seed"), [(0, 1), (2, 2), (5, 3)])
def test_the_overtakings_are_those_of_the_whole_list(spark: SparkSession, vms: int, seed: int) -> None:
    rule = SelectionsConfig.model_validate(SELECTIONS).rule
    query = understand(spark, OpenQuery(query="q", epoch=0, schema_ddl=SCHEMA_DDL, sql=SQL, selections=rule))
    assert (query.plan.switch_class, query.plan.switchable) == ("stateless", True)
    passages = list(generate_passages(1_000, seed, rate_per_s=2.0, way_s=30.0))
    feed, runs = Feed(passages, query.input_schema), list[pa.RecordBatch]()
    load = SelectionLoad(rule=rule, conditions=query.plan.selecting, rows=feed, deliver=runs.append, killed_per_s=0.03)
    World(static_world(seed, vms, load)).run()
    found = [
        result
        for batch in runs
        if batch.num_rows
        for result in Verdicts(query, spark).results(expanded(batch, rule)[0]).to_pylist()
    ]
    wanted = overtakings(passages[: feed.count])
    assert [(each["slow"], each["fast"], each["at"]) for each in found] == wanted
    assert len(wanted) > 50
