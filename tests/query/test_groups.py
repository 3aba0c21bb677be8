"""The micro-batches of a divided query: runs together, with ends where they had to be."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.query.flow.keyed.groups import Groups
from gateway.query.flow.run import BATCH_RUNS_MAX, Run
from tests.support.gateway_doubles import events

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=30)


def run(first: int, size: int) -> Run:
    batch = events(first, first + size - 1)
    return Run(first, first + size - 1, batch, float(first), batch.nbytes)


def runs_of(sizes: list[int]) -> list[Run]:
    found: list[Run] = []
    for size in sizes:
        found.append(run(found[-1].last_seq + 1 if found else 0, size))
    return found


@given(SIZES, st.data())
def test_every_event_is_taken_once_in_order_and_known_ends_are_ends(sizes: list[int], data: st.DataObject) -> None:
    runs = runs_of(sizes)
    ends = data.draw(st.lists(st.sampled_from([each.last_seq + 1 for each in runs])))
    groups, taken = Groups(ends), list[Run]()
    for each in runs:
        groups.add(each)
        while data.draw(st.booleans()) and (group := groups.take()):
            taken.append(group)
    while group := groups.take():
        taken.append(group)
    assert [row for group in taken for row in group.batch["id"].to_pylist()] == list(range(sum(sizes)))
    assert {group.last_seq + 1 for group in taken} >= set(ends)
    assert all(group.first_seq == before.last_seq + 1 for before, group in pairwise(taken))
    assert sum(group.raw_bytes for group in taken) == sum(each.raw_bytes for each in runs)
    assert groups.waiting == groups.waiting_events == 0


def test_a_micro_batch_that_a_part_has_had_waits_until_it_is_whole() -> None:
    groups = Groups([6])
    groups.add(run(0, 3))
    assert groups.take() is None
    groups.add(run(3, 3))
    groups.add(run(6, 3))
    first, second = groups.take(), groups.take()
    assert first is not None
    assert (first.first_seq, first.last_seq) == (0, 5)
    assert second is not None
    assert (second.first_seq, second.last_seq) == (6, 8)


def test_a_micro_batch_has_a_bound() -> None:
    groups = Groups([])
    for each in runs_of([1] * (BATCH_RUNS_MAX + 1)):
        groups.add(each)
    group = groups.take()
    assert group is not None
    assert group.events == BATCH_RUNS_MAX
    assert groups.waiting == 1
