from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.wan.settings import PACKET_BYTES, WanSettings


def argument(netem: list[str], name: str) -> str:
    return netem[netem.index(name) + 1]


@st.composite
def settings(draw: st.DrawFn) -> WanSettings:
    delay_s = draw(st.floats(0, 10))
    return WanSettings(
        delay_s=delay_s,
        jitter_s=draw(st.floats(0, delay_s)),
        loss=draw(st.floats(0, 1)),
        rate_bits_per_s=draw(st.none() | st.floats(1, 1e11)),
    )


@given(settings(), st.booleans())
def test_netem_is_told_everything_in_its_own_units(wan: WanSettings, is_cut: bool) -> None:
    netem = wan.netem(is_cut=is_cut)
    assert netem.count("delay") == 1
    assert math.isclose(float(argument(netem, "delay").removesuffix("us")), wan.delay_s * 1e6, abs_tol=0.51)
    assert math.isclose(float(netem[2].removesuffix("us")), wan.jitter_s * 1e6, abs_tol=0.51)
    lost = 100.0 if is_cut else wan.loss * 100
    assert math.isclose(float(argument(netem, "loss").removesuffix("%")), lost, abs_tol=1e-6)
    assert float(argument(netem, "rate").removesuffix("bit")) >= 1
    assert 32 <= int(argument(netem, "limit")) <= 30_000


def test_the_queue_holds_what_is_under_way_and_a_tenth_of_a_second() -> None:
    netem = WanSettings(delay_s=0.04, rate_bits_per_s=50e6).netem(is_cut=False)
    assert int(argument(netem, "limit")) == math.ceil(50e6 / 8 / PACKET_BYTES * 0.14)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"delay_s": -0.1}, "a delay of"),
        ({"delay_s": math.inf}, "a delay of"),
        ({"delay_s": math.nan}, "a delay of"),
        ({"delay_s": 0.01, "jitter_s": 0.02}, "a jitter of"),
        ({"loss": 1.1}, "a loss of"),
        ({"rate_bits_per_s": 0.0}, "a rate of"),
        ({"rate_bits_per_s": math.nan}, "a rate of"),
    ],
)
def test_an_impossible_wan_is_refused(wrong: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        WanSettings(**wrong)
