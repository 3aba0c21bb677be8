"""Latency (eq. 2-6) and throughput (eq. 7-10) of small graphs, worked out by hand.

Queues are first in, first out, so eq. 4 and 5 hold for events that came together. Ticks last 1 s. Events that are
generated in a tick come in its middle. A vertex passes its events on at the end of its turn in the tick, but none
before it has come. With ample instructions turns take no time.
"""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.simulated.events import EventQueue, EventSet
from engines.simulated.generators import RecordedRates
from engines.simulated.placement import Link
from engines.simulated.query import Edge, QueryGraph
from tests.simulated.cepsim_data import Watched, chain, consumer, join, operator, producer, window


def test_a_chain_with_time_for_all() -> None:
    query = chain(producer("p", 10), operator("f"), consumer("c"), selectivity=0.5)
    watched, quick = Watched(query, mips=40), Watched(query)
    for one in (watched, quick):
        one.simulation.run(3)
    # Generated at 0.5. The vertices use 10, 10 and 5 of 40 million instructions, one after the other: l = 25/40 - 0.5.
    # With ample instructions events are finished when they come.
    assert watched.latency.latency_s("c") == pytest.approx(0.125)
    assert quick.latency.latency_s("c") == pytest.approx(0.0, abs=1e-9)
    # 10 * 0.5 events are consumed in a tick, for which 10 had to be produced (eq. 7-9): 30 / 3 s.
    assert watched.processed("c") == pytest.approx([5, 5, 5])
    assert watched.throughput.per_s("c", 3) == pytest.approx(10)


def test_a_chain_that_falls_behind() -> None:
    # 8 million instructions a tick, half of them for either vertex: 4 events a tick of 6.
    watched = Watched(chain(producer("p", 6), consumer("c")), mips=8)
    watched.simulation.run(3)
    # First in, first out:
    # c's turn ends with the tick.
    # t=1: 4 of the 6 @ 0.5 (ts) go:             l = 1 - 0.5 = 0.5.
    # t=2: the 2 @ 0.5 and 2 of the 6 @ 1.5 go:  ts = 1.0, l = 2 - 1.0 = 1.0.
    # t=3: the 4 @ 1.5 go:                       l = 3 - 1.5 = 1.5.   Mean (eq. 6): 3 / 3 = 1.
    assert watched.latency.latency_s("c") == pytest.approx(1.0)
    # 4 events in each tick (eq. 7): 12 in 3 s.
    assert watched.throughput.per_s("c", 3) == pytest.approx(4)


def test_several_producers_share_by_the_size_of_their_queues() -> None:
    edges = [Edge("p1", "u"), Edge("p2", "u"), Edge("u", "c")]
    query = QueryGraph("q", [producer("p1", 3), producer("p2", 1), operator("u", ipe=2e6), consumer("c")], edges)
    # 10 million instructions: in proportion to ipe (1, 1, 2, 1) each vertex may process 2 events a tick.
    watched = Watched(query, mips=10)
    watched.simulation.run(2)
    # p2 needs only half of its 2 million, so c's turn ends at 0.9 of the tick. In brackets: when events were generated.
    # t=1: p1 sends 2 of 3 (0.5), p2 its 1 (0.5); u takes 2 of 3: 4/3 and 2/3; c takes 2: l = 0.9 - 0.5.
    #      left: p1 1 (0.5); u: 2/3 and 1/3 (0.5).
    # t=2: p1 holds 1 (0.5) and 3 (1.5): sends 1 of either, on average (1.0); p2 sends 1 (1.5).
    #      u takes 4/3 from p1: 2/3 (0.5), and 2/3 of the 2 (1.0); and 2/3 from p2: 1/3 (0.5) and 1/3 of the 1 (1.5);
    #      l = 1.9 - (2/3*0.5 + 2/3*1.0 + 1/3*0.5 + 1/3*1.5)/2 = 16/15.
    assert watched.latency.latency_s("c") == pytest.approx((2 / 5 + 16 / 15) / 2)
    # Every event stands for one produced event: 2 in each tick.
    assert watched.throughput.per_s("c", 2) == pytest.approx(2)


def test_two_paths_count_once() -> None:
    edges = [Edge("p", "f"), Edge("p", "u"), Edge("f", "u", 0.5), Edge("u", "c")]
    query = QueryGraph("q", [producer("p", 4), operator("f"), operator("u"), consumer("c")], edges)
    assert query.paths("p", "c") == 2
    watched = Watched(query, mips=32)
    watched.simulation.run(5)
    assert watched.processed("c") == pytest.approx([6.0] * 5)  # 4 straight, 4 * 0.5 by way of f
    # For either part 4 events had to be produced (eq. 8 adds them): 8 / 2 paths (eq. 10).
    assert watched.throughput.per_s("c", 5) == pytest.approx(4)
    # The vertices use 4, 4, 6 and 6 of 32 million instructions.
    assert watched.latency.latency_s("c") == pytest.approx(20 / 32 - 0.5)


def test_unequal_paths_over_a_network() -> None:
    edges = [Edge("p", "f"), Edge("p", "u"), Edge("f", "u", 0.5), Edge("u", "c")]
    query = QueryGraph("q", [producer("p", 4), operator("f"), operator("u"), consumer("c")], edges)
    watched = Watched(query, elsewhere=("f",), link=Link(delay_s=1.0))
    watched.simulation.run(3)
    # t=1: u takes 4 of p, l = 0.  t=2: the same: what p sent at 0.5 reaches f at 1.5, and u at 2.5.
    # t=3: 4 of p, l = 0, and 2 of f, l = 1 + 1, all with ts = 2.5: (4*0 + 2*2)/6 = 2/3.
    assert watched.latency.latency_s("c") == pytest.approx((0 + 0 + 2 / 3) / 3)
    # 4 + 4 + (4 + 4) = 16 events by 2 paths in 3 s.
    assert watched.throughput.per_s("c", 3) == pytest.approx(16 / 2 / 3)
    entries = [e for e in watched.log.entries if e.happened != "processed"]
    assert [(e.vertex, e.other, e.tick, e.at_s, e.events) for e in entries] == [
        ("p", "f", 1, 0.5, 4),
        ("f", "p", 2, 1.5, 4),
        ("p", "f", 2, 1.5, 4),
        ("f", "u", 2, 1.5, 2),
        ("f", "p", 3, 2.5, 4),
        ("u", "f", 3, 2.5, 2),
        ("p", "f", 3, 2.5, 4),
        ("f", "u", 3, 2.5, 2),
    ]


def test_a_narrow_link_is_a_queue() -> None:
    query = QueryGraph(
        "q", [producer("p", RecordedRates([0.5, 1.5], [4, 4])), consumer("c")], [Edge("p", "c", 1.0, 100.0)]
    )
    watched = Watched(query, elsewhere=("c",), link=Link(delay_s=0.5, bytes_per_s=200.0))
    watched.simulation.run(8)
    # 400 bytes take 2 s. Sent at 0.5: there at 0.5 + 2 + 0.5 = 3, l = 2.5.
    # Sent at 1.5, the link is free at 2.5: there at 2.5 + 2 + 0.5 = 5, l = 3.5.
    assert watched.latency.latency_s("c") == pytest.approx((2.5 + 3.5) / 2)


def test_a_tumbling_window() -> None:
    watched = Watched(chain(producer("p", 10), window("w", window_s=5, advance_s=5), consumer("c")))
    watched.simulation.run(11)
    # Events come into the window at 0.5..4.5; it closes at 5, when the next tick begins: 5 - 2.5; so does the next.
    assert watched.latency.latency_s("c") == pytest.approx(2.5)
    assert watched.processed("c") == pytest.approx([1, 1])
    assert watched.throughput.per_s("c", 10) == pytest.approx(10)  # each stands for 50


def test_a_sliding_window_counts_each_event_once() -> None:
    watched = Watched(chain(producer("p", 10), window("w", window_s=4, advance_s=2), consumer("c")))
    watched.simulation.run(7)
    # At 2: 2 - (0.5+1.5)/2 = 1. At 4: 4 - (0.5+1.5+2.5+3.5)/4 = 2. At 6: 6 - 4 = 2.
    assert watched.latency.latency_s("c") == pytest.approx((1 + 2 + 2) / 3)
    assert watched.throughput.per_s("c", 6) == pytest.approx(10)


def test_a_window_combines_by_its_function() -> None:
    edges = [Edge("p1", "w"), Edge("p2", "w"), Edge("w", "c")]
    both = window("w", window_s=2, advance_s=2, function=lambda counts: max(counts.values()) / 2)
    watched = Watched(QueryGraph("q", [producer("p1", 3), producer("p2", 5), both, consumer("c")], edges))
    watched.simulation.run(5)
    assert watched.processed("c") == pytest.approx([5, 5])  # max(6, 10) / 2
    assert watched.throughput.per_s("c", 4) == pytest.approx(3 + 5)


def joined(reduction: float, window_s: float, per_s: float) -> Watched:
    edges = [Edge("p1", "j"), Edge("p2", "j"), Edge("j", "c")]
    both = join("j", window_s=window_s, reduction=reduction)
    return Watched(QueryGraph("q", [producer("p1", per_s), producer("p2", per_s), both, consumer("c")], edges))


def test_a_join_finds_the_tuples_of_the_papers_example() -> None:
    watched = joined(reduction=0.01, window_s=60, per_s=100 / 60)
    watched.simulation.run(60)
    # 100 events at each input in the minute: 10 thousand pairs, of which a hundredth satisfy the condition.
    assert sum(watched.processed("c")) == pytest.approx(10_000 * 0.01)


def test_a_join_forgets_what_is_older_than_its_window() -> None:
    watched = joined(reduction=1, window_s=2, per_s=3)
    watched.simulation.run(4)
    # New pairs in a tick: 3*3; then (3+3)^2 - 3^2 = 27 with the tick before; ticks earlier than that do not count.
    assert watched.processed("c") == pytest.approx([9, 27, 27, 27])
    # tl of either producer is 3 a tick, 1 path each.
    assert watched.throughput.per_s("c", 4) == pytest.approx(6)
    assert watched.latency.latency_s("c") == pytest.approx(0.0, abs=1e-9)


def test_a_join_waits_for_its_other_side() -> None:
    edges = [Edge("p1", "j"), Edge("p2", "j"), Edge("j", "c")]
    late = RecordedRates([2.5], [4])
    both = join("j", window_s=10, reduction=0.5)
    early = producer("p1", RecordedRates([0.5], [2]))
    watched = Watched(QueryGraph("q", [early, producer("p2", late), both, consumer("c")], edges))
    watched.simulation.run(4)
    assert watched.processed("c") == pytest.approx([2 * 4 * 0.5])
    # p1's 2 came at 0.5 and go at 2.5: 2; p2's 4 pass at once: (2*2 + 4*0)/6 = 2/3.
    assert watched.latency.latency_s("c") == pytest.approx(2 / 3)
    assert watched.throughput.per_s("c", 4) == pytest.approx((2 + 4) / 4)


def test_in_overload_latency_is_the_age_of_the_oldest_and_not_of_the_mean() -> None:
    # 10 events a second come and 5 are served: what leaves at t came at t / 2.
    watched = Watched(chain(producer("p", 10), consumer("c")), mips=10)
    watched.simulation.run(60)
    assert watched.latency.latency_s("c") == pytest.approx(30 / 2, abs=0.6)


@given(
    steps=st.lists(
        st.tuples(st.floats(0.01, 10), st.sampled_from([0.0, 0.25, 1.0]), st.just(0.0) | st.floats(0.01, 12)),
        min_size=1, max_size=40,
    )
)  # fmt: skip
def test_a_queue_is_first_in_first_out_and_loses_nothing(steps: list[tuple[float, float, float]]) -> None:
    queue, due = EventQueue(), deque[list[float]]()
    for at_s, (count, selectivity, most) in enumerate(steps):
        queue.add(EventSet(count, at_s, 0.0, {"p": count}), selectivity)
        due.append([at_s, count * selectivity, count])
        taken, left, expected = queue.take(most, 0.0), most, [0.0, 0.0, 0.0]
        while due and left > 1e-12:
            group = due[0]
            part = min(1.0, left / group[1]) if group[1] > 0 else 1.0
            if group[1] > 0:
                moments = (group[1], group[0] * group[1], group[2])
                expected = [a + b * part for a, b in zip(expected, moments, strict=True)]
            left -= group[1] * part
            due[0] = [group[0], group[1] * (1 - part), group[2] * (1 - part)]
            if part == 1.0:
                due.popleft()
        assert taken.count == pytest.approx(expected[0], abs=1e-6)
        assert taken.count * taken.at_s == pytest.approx(expected[1], abs=1e-5)
        assert taken.totals.get("p", 0.0) == pytest.approx(expected[2], abs=1e-5)
    assert queue.count == pytest.approx(sum(group[1] for group in due), abs=1e-6)


def test_a_long_queue_keeps_its_order_with_few_groups() -> None:
    queue = EventQueue()
    for at_s in range(100_000):
        queue.add(EventSet(1.0, float(at_s)))
    assert queue.count == 100_000
    ages = [queue.take(1000.0, 0.0).at_s for _ in range(100)]
    # A group is at most a 256th of the queue, 390 events.
    assert ages == pytest.approx([1000 * n + 499.5 for n in range(100)], abs=256)
    assert ages == sorted(ages)
