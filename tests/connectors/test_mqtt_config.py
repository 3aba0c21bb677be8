from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub
from pydantic import ValidationError

from gateway.config.connectors.mqtt import MqttSinkConfig, MqttSourceConfig, filters_overlap

LEVELS = st.lists(st.sampled_from(["a", "b", "", "$SYS"]), min_size=1, max_size=4)


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = [draw(st.sampled_from([level, "+"])) for level in draw(LEVELS)]
    return "/".join([*levels, "#"] if draw(st.booleans()) else levels)


def source(**said: Any) -> MqttSourceConfig:
    return MqttSourceConfig.model_validate({"type": "mqtt", "host": "broker", "topics": ["a/#"], **said})


def sink(**said: Any) -> MqttSinkConfig:
    return MqttSinkConfig.model_validate({"type": "mqtt", "host": "broker", "topic": "out", **said})


def test_the_port_follows_tls() -> None:
    assert source().broker_port == 1883
    assert source(tls={}).broker_port == 8883
    assert source(tls={}, port=1884).broker_port == 1884
    assert sink(tls={}).broker_port == 8883


@pytest.mark.parametrize(
    ("topics", "says"),
    [
        (["a/#/b"], "# is a whole level"),
        (["a#"], "# is a whole level"),
        (["a/b+"], "+ is a whole level"),
        (["$share/group/a"], "clients says how many"),
        ([""], "must have 1 to 65535 bytes"),
        (["a\0"], "must have 1 to 65535 bytes"),
        (["a", "a"], "would arrive twice"),
        (["a/+", "b", "a/b"], "would arrive twice"),
    ],
)
def test_topics_that_cannot_be_right_are_refused(topics: list[str], says: str) -> None:
    with pytest.raises(ValidationError) as raised:
        source(topics=topics)
    assert says in str(raised.value)


@pytest.mark.parametrize("topic", ["a/+", "#", "", "$share/g/a"])
def test_a_sink_needs_one_topic(topic: str) -> None:
    with pytest.raises(ValidationError):
        sink(topic=topic)


@pytest.mark.parametrize(("given", "missing"), [("certificate", "key"), ("key", "certificate")])
def test_a_certificate_and_its_key_go_together(given: str, missing: str) -> None:
    with pytest.raises(ValidationError, match="certificate and key go together"):
        source(tls={given: "some.pem"})


@given(filters(), filters(), LEVELS)
def test_what_two_filters_match_is_an_overlap(one: str, other: str, levels: list[str]) -> None:
    """Paho's own matching is the reference."""
    topic = "/".join(levels)
    if topic_matches_sub(one, topic) and topic_matches_sub(other, topic):
        assert filters_overlap(one, other)
    assert filters_overlap(one, other) == filters_overlap(other, one)


@given(LEVELS, st.booleans(), st.data())
def test_filters_without_a_common_topic_do_not_overlap(levels: list[str], deep: bool, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(levels) - 1))
    other = [*levels]
    other[index] = "c"
    assert not filters_overlap("/".join(levels), "/".join([*other, "#"] if deep else other))
