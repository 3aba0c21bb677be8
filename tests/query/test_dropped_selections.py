"""Selections that end because too many are open become dead letters, each once, also after a kill."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gateway.journal.deadletters import DeadLetter, DeadLetterFile
from gateway.query.flow.ingress import RunLimits
from infra.messages import SelectionRule
from tests.query.ingress_site import Site, table_source

# Each event opens a selection of ten events, and after each run of four only three may be open.
RULE = SelectionRule(column="", each_ms=0, each_events=1, after_ms=0, events=10, most_events=10, most_open=3)
FOURS = RunLimits(4, 1 << 30, 1.0)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def letters(site: Site) -> list[DeadLetter]:
    text = (site.folder / "dead.jsonl").read_bytes()
    return msgspec.json.Decoder(DeadLetter).decode_lines(text)


async def test_the_oldest_end_without_a_result_and_each_is_kept_once(site: Site) -> None:
    async with site.started(table_source(12), limits=FOURS, run=False, rule=RULE) as ingress:
        await ingress.run()
    # No selection has ten events before it is dropped.
    assert [run.batch.num_rows for run in site.runs] == [0, 0, 0]
    found = letters(site)
    assert [each.seq for each in found] == list(range(9))
    assert msgspec.json.decode(found[0].raw)["n"] == 0
    assert "more than 3 were open" in found[0].reason
    async with site.started(table_source(12), limits=FOURS, run=False, rule=RULE):
        pass
    assert letters(site) == found


async def test_letters_that_a_kill_prevented_are_written_by_the_next_start(site: Site) -> None:
    async with site.started(table_source(12), limits=FOURS, run=False, rule=RULE) as ingress:
        await ingress.run()
    (site.folder / "dead.jsonl").unlink()
    site.dead_letters = DeadLetterFile(site.folder / "dead.jsonl")
    async with site.started(table_source(12), limits=FOURS, run=False, rule=RULE):
        pass
    assert [each.seq for each in letters(site)] == list(range(9))
