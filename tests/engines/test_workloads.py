"""The queries of SNB2016, bus delays and first stories in Spark, stopped and continued, against their oracles."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engines.buses import traces
from engines.buses.generator import generate_reports
from engines.buses.traces import read_dublin
from engines.snb import events as snb
from engines.snb.events import read_events
from engines.snb.generator import generate_events
from engines.stories import texts as stories
from engines.stories.generator import generate_texts
from engines.stories.texts import read_tweets
from tests.engines.stream_bench import Bench
from tests.workloads.bus_oracle import windows_of
from tests.workloads.places import CHALLENGE, DUBLIN, TWEETS
from tests.workloads.snb_oracle import top_three
from tests.workloads.story_oracle import stories_of

pytestmark = pytest.mark.spark


def streamed(
    bench: Bench, folder: Path, function: str, schema: str, events: Sequence[msgspec.Struct]
) -> list[dict[str, Any]]:
    """Return the results of a query that is stopped on the way and continues from its checkpoint."""
    rows = [msgspec.structs.asdict(event) for event in events]
    stop, end = len(rows) * 3 // 5, len(rows)
    found: list[dict[str, Any]] = []
    for cuts in ((0, 1, stop // 2, stop), (stop, stop + 7, end)):
        running = bench.open(function=function, schema=schema, checkpoint_dir=str(folder))
        for first, last in pairwise(cuts):
            running.put_seqs(first, rows[first:last])
        found += running.rows_until(cuts[-1])
        running.wait_for_commit(cuts[-1])
        running.stream.close()
    return found


def test_the_top_three_posts_are_the_oracles(bench: Bench, tmp_path: Path) -> None:
    if CHALLENGE.exists():
        events = list(read_events(CHALLENGE))[:1_000]
    else:
        events = list(generate_events(1_000, seed=5, gap_s=1_800))
    wanted = list(top_three(events))
    assert len(wanted) > 100
    found = streamed(bench, tmp_path, "engines.snb.activeposts:active_posts", snb.SCHEMA_DDL, events)
    assert found == wanted


def test_delayed_areas_are_the_oracles(bench: Bench, tmp_path: Path) -> None:
    reports = list(read_dublin(DUBLIN))[-2_000:] if DUBLIN.exists() else []
    reports = list(traces.in_order([*generate_reports(1_500, seed=1, buses=60), *reports]))
    wanted = windows_of(reports)
    assert any(row["alarm"] for row in wanted)
    found = streamed(bench, tmp_path, "engines.buses.delays:delayed_areas", traces.SCHEMA_DDL, reports)
    assert sorted(found, key=by_window) == wanted


def test_first_stories_are_the_oracles(bench: Bench, tmp_path: Path) -> None:
    tweets = list(islice(read_tweets(TWEETS), 200)) if TWEETS.exists() else []
    texts = enumerate([*tweets, *generate_texts(300, seed=5)])
    # Few keys, so that each has several texts.
    events = [msgspec.structs.replace(each, number=number, key=each.key % 40) for number, each in texts]
    wanted = stories_of(events)
    assert 40 < len(wanted) < len(events) - 40
    found = streamed(bench, tmp_path, "engines.stories.firststories:first_stories", stories.SCHEMA_DDL, events)
    assert sorted(found, key=lambda row: row["number"]) == wanted


def by_window(row: dict[str, Any]) -> tuple[datetime, str]:
    return row["opens"], row["area"]
