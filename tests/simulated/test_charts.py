"""The figures of ``spillway simulate --html``: what they show, and that they are readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.simulate.comparing.charts import frontier, latencies, lives, missed, over_time, places, unbeaten
from gateway.simulate.comparing.contest import Contest
from gateway.simulate.fluid.outcomes import FluidOutcome
from gateway.simulate.fluid.tally import Point
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings

QUERY = QuerySettings(name="q", switching=SwitchingSettings(2.4, 2.0, 1.0, 1000, 1.0), latency_qos_s=2.0)


def outcome(usd: float, mean_s: float, marks: tuple[tuple[float, str, str], ...] = ()) -> FluidOutcome:
    points = tuple(Point(float(at + 1), (mean_s,), (0.5,), 100.0, 1, usd * (at + 1) / 300) for at in range(300))
    return FluidOutcome(
        lasted_s=300.0, slots=300, calls=1, vms=1, usd=usd, mean_s=mean_s, p95_s=mean_s, missed=0.5, queries=(),
        points=points, vm_marks=marks, commands=(),
    )  # fmt: skip


def contest(**outcomes: FluidOutcome) -> Contest:
    return Contest(outcomes, None, "nobody asked", 15.0)


@given(points=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_what_is_on_the_line_is_beaten_by_none(points: list[tuple[int, int]]) -> None:
    def beaten(one: tuple[float, float]) -> bool:
        return any(usd <= one[0] and s <= one[1] and (usd, s) != one for usd, s in points)

    assert unbeaten(points) == sorted({point for point in points if not beaten(point)})


def test_names_of_neighbours_stand_apart() -> None:
    found = places([0.0, 0.50, 0.51, 0.52, 1.0], 1.0)
    assert found[0] == found[1] == found[4] == "top center"
    assert len(set(found[1:4])) == 3


@pytest.mark.parametrize(("worst_s", "scale"), [(5.0, None), (900.0, "log")])
def test_latencies_far_apart_are_shown_on_a_logarithmic_axis(worst_s: float, scale: str | None) -> None:
    shown = contest(home=outcome(0.0, worst_s), reactive=outcome(0.2, 1.5))
    assert frontier(shown).layout.yaxis.type == scale
    figure = latencies(shown, (QUERY,))
    assert figure.layout.yaxis.type == scale
    notes = {note.text: note.y for note in figure.layout.annotations}
    on_axis = {name: 10**y if scale else y for name, y in notes.items() if name.startswith("L_")}
    assert on_axis == pytest.approx({"L_s": 2.4, "L_d": 2.0, "L_p": 1.0})


def test_misses_are_means_of_equal_parts_of_the_time() -> None:
    points = [Point(float(at + 1), (1.0,), (1.0 if at < 100 else 0.0,), 1.0, 0, 0.0) for at in range(200)]
    bins = missed(points)
    assert len(bins) == 100
    assert [part for _, part in bins] == [100.0] * 50 + [0.0] * 50
    assert bins[-1][0] == 200.0


def test_vms_that_live_together_have_strips_of_their_own() -> None:
    marks = (
        (0.0, "a", "start"), (10.0, "a", "ready"), (50.0, "b", "start"), (60.0, "b", "ready"),
        (100.0, "a", "end"), (101.0, "a", "gone"), (150.0, "c", "start"), (160.0, "c", "ready"),
    )  # fmt: skip
    figure = lives(contest(reactive=outcome(0.1, 1.0, marks)))
    strips = [(shape.x0, shape.x1, shape.y0, shape.y1) for shape in figure.layout.shapes]
    assert min(x0 for x0, *_ in strips) == 0
    assert max(x1 for _, x1, *_ in strips) == 300
    for at, (x0, x1, y0, y1) in enumerate(strips):
        for other_x0, other_x1, other_y0, other_y1 in strips[:at]:
            apart = x0 >= other_x1 or other_x0 >= x1 or y0 >= other_y1 or other_y0 >= y1
            assert apart, "two strips are drawn over each other"


def test_vms_are_counted_in_whole_numbers() -> None:
    assert over_time(contest(reactive=outcome(0.1, 1.0))).layout.yaxis.dtick == 1
