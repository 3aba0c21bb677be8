from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import units
from gateway.config.units import Unit, UnitError


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.duration_s, "10ms", 0.01),
        (units.duration_s, "100ms", 0.1),
        (units.duration_s, "2s", 2.0),
        (units.duration_s, "2.4s", 2.4),
        (units.duration_s, "1 m", 60.0),
        (units.duration_s, "1.5h", 5400.0),
        (units.size_bytes, "1B", 1),
        (units.size_bytes, "1MB", 10**6),
        (units.size_bytes, "1.5MB", 1_500_000),
        (units.size_bytes, "1MiB", 2**20),
        (units.rate_per_s, "2000/s", 2000.0),
        (units.rate_per_s, "0.5/s", 0.5),
        (units.link_bits_per_s, "40Mbit/s", 40e6),
        (units.share_fraction, "10%", 0.1),
        (units.share_fraction, "0%", 0.0),
        (units.share_fraction, "100%", 1.0),
    ],
)
def test_quantities_are_read_exactly(parse: Callable[[object], float], text: str, value: float) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "given", "must_say"),
    [
        (units.duration_s, 2, "ms, s, m or h"),
        (units.duration_s, "2", "as in 2s"),
        (units.duration_s, True, "ms, s, m or h"),
        (units.duration_s, "-2s", "not a duration"),
        (units.duration_s, "2S", "not a duration"),
        (units.duration_s, "1m30s", "not a duration"),
        (units.duration_s, "1e3s", "not a duration"),
        (units.duration_s, "٢s", "not a duration"),
        (units.duration_s, "9" * 19 + "s", "digits"),
        (units.size_bytes, "1mb", "B, kB, KiB, MB, MiB, GB or GiB"),
        (units.size_bytes, "0.5B", "whole number"),
        (units.rate_per_s, "2000", "/s"),
        (units.link_bits_per_s, "40MB/s", "Mbit/s"),
        (units.share_fraction, "101%", "more than 100%"),
        (units.share_fraction, 0.1, "%"),
        (units.share_fraction, None, "10%"),
    ],
)
def test_what_cannot_be_read_says_what_can(parse: Callable[[object], float], given: object, must_say: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse(given)
    assert must_say in str(caught.value)


FAMILIES = [units.DURATION, units.SIZE, units.RATE, units.LINK_RATE, units.SHARE]


@given(family=st.sampled_from(FAMILIES), data=st.data())
def test_what_was_parsed_is_formatted_to_the_same_value(family: Unit, data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from(family.names))
    number = data.draw(st.decimals(0, 10**9, places=data.draw(st.integers(0, 3))))
    value = float(family.parse(f"{number:f}{unit}"))
    assert float(family.parse(family.format(value))) == value


@given(family=st.sampled_from(FAMILIES), text=st.text(max_size=12))
def test_any_text_is_read_or_refused_with_a_hint(family: Unit, text: str) -> None:
    refusal = ""
    try:
        value = family.parse(text)
    except UnitError as error:
        refusal = str(error)
    assert family.example in refusal or value >= 0


@pytest.mark.parametrize(
    ("family", "value", "text"),
    [
        (units.DURATION, 0.1, "100ms"),
        (units.DURATION, 2.0, "2s"),
        (units.DURATION, 60.0, "1m"),
        (units.DURATION, 90.0, "90s"),
        (units.SIZE, 10**6, "1MB"),
        (units.SIZE, 2**20, "1MiB"),
        (units.LINK_RATE, 40e6, "40Mbit/s"),
        (units.SHARE, 0.1, "10%"),
        (units.RATE, 2000.0, "2000/s"),
    ],
)
def test_the_shortest_form_is_written(family: Unit, value: float, text: str) -> None:
    assert family.format(value) == text
