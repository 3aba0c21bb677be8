"""A query that is divided by its keys: each part gets its events of every micro-batch, and the results are joined."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gateway.config.models import PrivateConfig
from gateway.query.flow.keyed.together import Division
from gateway.query.opening import Opener
from infra.messages import HEARTBEAT, Poison, RunMessage
from tests.query.pipeline_site import Query
from tests.support.gateway_doubles import INPUT, FakeHost, ManualClock
from tests.support.query_site import Site
from tests.support.waiting import until

PARTS = 3
OF_PART = INPUT.append(pa.field(HEARTBEAT, pa.bool_()))


class Divided(Query):
    """A query of three parts, each in a place of its own, whose hosts the test controls."""

    def __init__(self, folder: Path, resume_seqs: tuple[int, ...] = (0,) * PARTS, ends: Sequence[int] = ()) -> None:
        self.arrived: list[list[int]] = []
        places = ("home", "vm-1", "vm-2")
        division = Division("id", {}, (), places, resume_seqs, (*ends, 0), self._arrived)
        super().__init__(folder, stateful=True, division=division)
        self.noted: list[int] = []
        self.pipeline.note_batches(self.noted.extend)
        self.parts = [self.add_host(place, part, schema=OF_PART) for part, place in enumerate(places)]

    def _arrived(self, events: Sequence[int]) -> None:
        self.arrived.append(list(events))

    async def answered(self, host: FakeHost, at: int, poison: Sequence[Poison] = ()) -> tuple[RunMessage, list[int]]:
        """Let a host answer its run with this number, once it is there, with the ids of the part."""
        await until(lambda: len(host.runs) > at, self.clock, 0.1)
        run = host.runs[at]
        ids = [row["id"] for row in host.rows_of(run) if not row[HEARTBEAT]]
        host.consume(run)
        bad = {each.row for each in poison}
        host.answer(run.first_seq, run.last_seq, [key for row, key in enumerate(ids) if row not in bad], poison)
        return run, ids

    async def settled(self, end_seq: int, runs: int) -> None:
        """Return when all before ``end_seq`` is committed, and the parts have a further run, or nothing is left."""
        await until(lambda: self.pipeline.committed_before == end_seq, self.clock, 0.1)
        await until(
            lambda: self.pipeline.idle or all(len(host.runs) >= runs + 1 for host in self.parts), self.clock, 0.1
        )


@pytest.mark.parametrize("seed", range(3))
async def test_every_event_is_delivered_once_whatever_part_answers_first(tmp_path: Path, seed: int) -> None:
    chance, query = random.Random(seed), Divided(tmp_path)
    seen: dict[int, list[list[int]]] = {}
    async with query.running():
        for first in range(0, 200, 10):
            query.offer(first, first + 9)
        at = 0
        while not query.pipeline.idle:
            limits = set()
            for host in chance.sample(query.parts, PARTS):
                run, ids = await query.answered(host, at)
                limits.add((run.first_seq, run.last_seq))
                seen.setdefault(run.first_seq, []).append(ids)
            assert len(limits) == 1
            await query.settled(limits.pop()[1] + 1, at + 1)
            at += 1
        await query.all_committed()
    assert sorted(query.ids()) == list(range(200))
    assert query.noted[-1] == 200
    assert 1 < len(query.noted) < 20, "runs that wait share a micro-batch"
    for first, parts in seen.items():
        together = sorted(key for ids in parts for key in ids)
        assert together == list(range(first, first + len(together)))
    assert sum(map(sum, query.arrived)) == 200


async def test_a_part_whose_state_has_a_micro_batch_does_not_get_it_again(tmp_path: Path) -> None:
    first = Divided(tmp_path)
    async with first.running():
        first.offer(0, 9)
        for host in first.parts:
            await first.answered(host, 0)
        await first.all_committed()
    again = Divided(tmp_path, resume_seqs=(10, 0, 10), ends=first.noted)
    async with again.running():
        again.offer(0, 4)
        again.offer(5, 9)
        again.offer(10, 19)
        run, _ = await again.answered(again.parts[1], 0)
        assert (run.first_seq, run.last_seq) == (0, 9)
        for host, at in zip(again.parts, (0, 1, 0), strict=True):
            run, _ = await again.answered(host, at)
            assert (run.first_seq, run.last_seq) == (10, 19)
        await again.all_committed()
    assert sorted(again.ids()[:10]) == list(range(10))
    assert sorted(again.ids()) == list(range(20))


async def test_a_bad_row_of_a_part_is_the_dead_letter_of_its_own_event(tmp_path: Path) -> None:
    query = Divided(tmp_path)
    async with query.running():
        query.offer(0, 29)
        _, ids = await query.answered(query.parts[0], 0, [Poison(row=2, reason="it fails")])
        for host in query.parts[1:]:
            await query.answered(host, 0)
        await query.all_committed()
    (letter,) = map(json.loads, (tmp_path / "dead.jsonl").read_text().splitlines())
    assert letter["seq"] == ids[2]
    assert HEARTBEAT not in json.dumps(letter)
    assert sorted([*query.ids(), ids[2]]) == list(range(30))


async def test_all_parts_read_the_same_version_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("1,one\n")
    (tmp_path / "in.jsonl").touch()
    said: dict[str, Any] = {
        "switching": {"mode": "keys", "key": "id", "parts": PARTS},
        "tables": {"names": {"path": "names.csv", "format": "csv", "schema": "id BIGINT, name STRING"}},
    }
    config = Site(tmp_path).config(**said).queries["q"]
    opener = Opener("q", config, tmp_path, "", PrivateConfig(), ManualClock(), lambda *_: None)
    assert [part.definition.query for part in opener.parts] == [f"q~{index}" for index in range(PARTS)]
    host, found = FakeHost("home"), set()
    for part in opener.parts:
        found.add(await part.tables.at(host.connection))
        (tmp_path / "names.csv").write_text("1,changed meanwhile\n")
    assert len(found) == 1
    await host.connection.close("done")
