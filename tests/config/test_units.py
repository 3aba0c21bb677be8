import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.words import units
from gateway.config.words.units import Unit, UnitError


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.duration_s, "10ms", 0.01),
        (units.duration_s, "100ms", 0.1),
        (units.duration_s, "2s", 2.0),
        (units.duration_s, "2.4s", 2.4),
        (units.duration_s, "1 m", 60.0),
        (units.duration_s, "1.5h", 5400.0),
        (units.duration_s, "2 S", 2.0),
        (units.duration_s, "2sec", 2.0),
        (units.duration_s, " 2   Seconds ", 2.0),
        (units.duration_s, "1min", 60.0),
        (units.duration_s, "250 msec", 0.25),
        (units.duration_s, "2 hours", 7200.0),
        (units.size_bytes, "1B", 1),
        (units.size_bytes, "1MB", 10**6),
        (units.size_bytes, "1.5MB", 1_500_000),
        (units.size_bytes, "1MiB", 2**20),
        (units.size_bytes, "10KB", 10_000),
        (units.size_bytes, "2 gib", 2**31),
        (units.size_bytes, "100 Bytes", 100),
        (units.rate_per_s, "2000/s", 2000.0),
        (units.rate_per_s, "0.5/s", 0.5),
        (units.rate_per_s, "2000/sec", 2000.0),
        (units.rate_per_s, "2000 / Second", 2000.0),
        (units.rate_per_s, "2000 per  second", 2000.0),
        (units.link_bits_per_s, "40Mbit/s", 40e6),
        (units.link_bits_per_s, "40 mbit/s", 40e6),
        (units.link_bits_per_s, "40Mbps", 40e6),
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
        (units.duration_s, "2 weeks", "not a duration"),
        (units.duration_s, "2M", "write 2m"),
        (units.duration_s, "1m30s", "not a duration"),
        (units.duration_s, "1e3s", "not a duration"),
        (units.duration_s, "٢s", "not a duration"),
        (units.duration_s, "9" * 19 + "s", "digits"),
        (units.size_bytes, "1mb", "B, kB, KiB, MB, MiB, GB or GiB"),
        (units.size_bytes, "10Kb", "write 10kB or 10KiB"),
        (units.size_bytes, "10 kb", "write 10kB or 10KiB"),
        (units.size_bytes, "1.5K", "write 1.5kB or 1.5KiB"),
        (units.size_bytes, "2M", "write 2MB or 2MiB"),
        (units.size_bytes, "1Mb", "write 1MB or 1MiB"),
        (units.size_bytes, "1G", "write 1GB or 1GiB"),
        (units.size_bytes, "1gb", "write 1GB or 1GiB"),
        (units.size_bytes, "8b", "write 8B"),
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


@given(
    family=st.sampled_from(FAMILIES),
    text=st.from_regex(r" {0,2}[0-9]{1,3}(\.[0-9])? {0,2}[a-zA-Z/% ]{0,8}", fullmatch=True),
)
def test_the_json_schema_allows_what_is_read_and_nothing_else(family: Unit, text: str) -> None:
    try:
        family.parse(text)
        read = True
    except UnitError:
        read = False
    assert read == (re.search(family.pattern, text) is not None)


# The size of each unit by the letters of its name, whatever the family's own tables say.
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@given(
    number=st.integers(0, 10**6),
    word=st.sampled_from(["ms", "msec", "s", "sec", "secs", "second", "seconds", "min", "minutes", "h", "hr", "hours"]),
    case=st.sampled_from([str.lower, str.upper, str.title]),
    blanks=st.text(" \t", max_size=3),
)
def test_the_case_and_spacing_of_a_duration_do_not_matter(
    number: int, word: str, case: Callable[[str], str], blanks: str
) -> None:
    unit = "ms" if word.startswith("ms") else word[0]
    assert units.duration_s(f"{number}{blanks}{case(word)}") == pytest.approx(number * SECONDS[unit])


@given(prefix=st.sampled_from("kKmMgG"), rest=st.sampled_from(["", "b"]), number=st.integers(1, 999))
def test_a_size_that_can_be_read_in_two_ways_is_answered_with_both(prefix: str, rest: str, number: int) -> None:
    with pytest.raises(UnitError) as caught:
        units.size_bytes(f"{number}{prefix}{rest}")
    for right in re.findall(r"write (\S+) or (\S+) ", str(caught.value))[0]:
        power = "KMG".index(prefix.upper()) + 1
        assert units.size_bytes(right) in (number * 1000**power, number * 1024**power)
