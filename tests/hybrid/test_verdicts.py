from __future__ import annotations

from collections import Counter
from itertools import pairwise

from tests.hybrid.cases import CASES, KINDS, kind_of
from tests.hybrid.events import LAST, RUNS, counted, runs
from tests.hybrid.verdicts import Verdict, by_class, by_kind, difference


def test_rows_are_compared_with_how_often_they_come() -> None:
    assert difference(Counter(a=2, b=1), Counter(b=1, a=2)) == ""
    assert difference(Counter(a=2), Counter(a=1, b=1)) == "1 of 2 rows are missing: ['a']; 1 more: ['b']"
    assert difference(Counter(a=1), Counter(a=2)) == "0 of 1 rows are missing: []; 1 more: ['a']"


def test_the_corpus_has_all_kinds() -> None:
    own = [case for case in CASES if not case.name.startswith("class-")]
    assert len(own) >= 60
    assert len(CASES) >= 180
    assert {case.kind for case in CASES} == set(KINDS)
    assert len({case.name for case in CASES}) == len(CASES)
    assert kind_of("SELECT window(at, '1 minute', '5 seconds') AS w FROM events") == "sliding windows"


def test_some_events_come_too_late_and_the_last_ones_close_all_windows() -> None:
    found = runs(5)
    assert found == runs(5)
    assert len(found) == RUNS + LAST
    events = [event for run in found for event in run]
    late = [event for event in events if event not in counted(events, "not late")]
    assert len(late) == RUNS // 2
    assert counted(events, "not late")[:-LAST] == counted(events, "on time")
    assert all(newer["at"] > each["at"] for run in found[:-LAST] for each in run for newer in found[-1])
    # None but the late ones is older than what came in the runs before by more than the lateness.
    for before, after in pairwise(found[:RUNS]):
        newest = max(event["at"] for event in before)
        assert all(event["at"] > newest or event in late for event in after)


def test_the_counts_are_those_of_the_verdicts() -> None:
    same = Verdict(name="a", kind="UDFs", outcome="identical", switch_class="keyed", moves=2, judged=True, part_moves=3)
    refused = Verdict(name="b", kind="UDFs", outcome="refused", reason="why")
    wrong = Verdict(name="c", kind="explode", outcome="wrong", switch_class="stateless", lost=1)
    found = by_kind([same, refused, wrong])
    assert found == [
        ("UDFs", 2, 1, 1, 1, 2, 0, 0, 1, 0),
        ("explode", 1, 0, 0, 0, 0, 1, 0, 0, 1),
        ("all", 3, 1, 1, 1, 2, 1, 0, 1, 1),
    ]
    assert by_class([same, refused, wrong]) == [
        ("stateless", 1, 0, 0, 0, 0, 1, 0, 0, 1),
        ("keyed", 1, 1, 1, 1, 2, 0, 0, 0, 0),
        ("whole", 0, 0, 0, 0, 0, 0, 0, 0, 0),
    ]
