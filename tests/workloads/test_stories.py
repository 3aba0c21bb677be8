"""First stories: words, keys, reader, generator, and the operator against the oracle wherever its keys are."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import acos, pi
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.stories.generator import generate_texts
from engines.stories.nearest import KeptTexts, StoryLane
from engines.stories.texts import ShortText, read_tweets, written
from engines.stories.words import KEYS, PLANES, key_of, vector_of
from policies.keys.balancing import BalanceTerms
from policies.keys.placement import by_two_choices
from policies.keys.splitter import KeySplitter
from tests.workloads.places import TWEETS
from tests.workloads.story_oracle import far, stories_of, weights_of

START = datetime(2013, 4, 15, tzinfo=UTC)
WORDS = ("flood", "river", "storm", "the", "and", "bridge", "boston", "is")
LANES = 5


def said(number: int, key: int, text: str) -> ShortText:
    return ShortText(number=number, at=START + timedelta(seconds=number), key=key, text=text)


def numbers(texts: Sequence[ShortText]) -> list[int]:
    """Return which texts are first stories by the oracle."""
    return [row["number"] for row in stories_of(texts)]


def told(texts: Sequence[ShortText], lane_of: Sequence[int]) -> list[int]:
    """Return which texts are first stories if each is told in the lane that is given for it, and no state moves."""
    lanes = [StoryLane() for _ in range(LANES)]
    chosen = zip(texts, lane_of, strict=True)
    return [each.number for each, lane in chosen if lanes[lane].tell(each.key, vector_of(each.text))]


def test_words_are_those_of_three_letters_or_more_that_somebody_wrote() -> None:
    text = vector_of("RT @mayor: Flood &amp; STORM in #Boston http://t.co/x1 flood_2013")
    same = vector_of("boston storm flood 2013 FLOOD")
    assert np.array_equal(text.words, same.words)
    assert np.array_equal(text.weights, same.weights)
    assert sorted(text.weights.tolist()) == [2, 3, 4, 6]  # 2013, storm, boston, and flood twice
    assert not len(vector_of("RT @a: is it http://t.co/x").words)


def test_a_key_is_the_same_for_the_same_words_and_one_of_4096() -> None:
    assert KEYS == 4096
    assert key_of("is it") == 0
    assert key_of("Storm over the river") == key_of("RT @x: over the RIVER: storm! http://t.co/x")
    keys = {key_of(each.text) for each in generate_texts(2_000, seed=3)}
    assert all(0 <= key < KEYS for key in keys)
    assert len(keys) > 1_000


def test_the_planes_part_texts_as_often_as_their_angle_says() -> None:
    apart, wanted = 0, 0.0
    for number in range(400):
        one, other = f"alpha{number} beta{number} gamma{number}", f"alpha{number} beta{number} delta{number}"
        apart += (key_of(one) ^ key_of(other)).bit_count()
        wanted += PLANES * acos(1 - far(weights_of(one), weights_of(other))) / pi
    assert apart == pytest.approx(wanted, rel=0.1)


def test_a_text_far_from_the_last_of_its_key_is_a_first_story() -> None:
    texts = ["river flood", "flood in the river", "storm", "is it", "storm and bridge"]
    assert numbers([said(at, 7, text) for at, text in enumerate(texts)]) == [0, 2]
    assert numbers([said(at, at, text) for at, text in enumerate(texts)]) == [0, 1, 2, 4]
    kept = KeptTexts()
    assert [kept.tell(vector_of(text)) for text in texts] == [1.0, None, 1.0, None, None]
    assert len(kept) == 4


def test_a_text_that_is_not_among_the_last_ones_is_forgotten() -> None:
    kept = KeptTexts()
    found = [kept.tell(vector_of(text), last=2) for text in ("flood", "storm", "flood", "river", "bridge", "flood")]
    assert found == [1.0, 1.0, None, 1.0, 1.0, 1.0]
    assert len(kept) == 2


def test_the_state_of_a_key_is_in_one_lane() -> None:
    one, other = StoryLane(), StoryLane()
    assert one.tell(3, vector_of("storm"))
    assert one.texts == 1
    state = one.give([3, 4])
    assert one.texts == 0
    assert list(state) == [3]
    assert other.tell(3, vector_of("river"))
    with pytest.raises(ValueError, match="state of key 3 is here"):
        other.take(state)
    assert other.give([3])[3].nearest(vector_of("storm")) == 1.0
    other.take(state)
    assert not other.tell(3, vector_of("storm"))


TEXTS = st.lists(st.tuples(st.integers(0, 6), st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)), max_size=60)
MOVES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6), st.integers(0, LANES - 1)), max_size=30)


@given(TEXTS, MOVES)
def test_moving_keys_changes_no_story(said_of: list[tuple[int, str]], moves: list[tuple[int, int, int]]) -> None:
    texts = [said(number, key, text) for number, (key, text) in enumerate(said_of)]
    lanes, lane_of, found = [StoryLane() for _ in range(LANES)], [key % LANES for key in range(7)], []
    for each in texts:
        for _, key, target in (move for move in moves if move[0] == each.number):
            state = lanes[lane_of[key]].give([key])
            lanes[target].take(pickle.loads(pickle.dumps(state)))
            lane_of[key] = target
        if lanes[lane_of[each.key]].tell(each.key, vector_of(each.text)):
            found.append(each.number)
    assert found == numbers(texts)


def test_the_splitter_s_moves_change_no_story() -> None:
    texts = list(generate_texts(8_000, seed=3))
    # One lane begins with nearly all texts of half the stream.
    texts = sorted(texts, key=lambda each: (each.number >= 4_000 and each.key % LANES != 0, each.number))
    splitter = KeySplitter(KEYS, tuple("abcde"), BalanceTerms(theta=15.0, pick="heavy"))
    lanes, found, moved = [StoryLane() for _ in range(LANES)], [], 0
    for first in range(0, len(texts), 1_000):
        window = texts[first : first + 1_000]
        lane_of = splitter.split(np.array([each.key for each in window], dtype=np.intp)).tolist()
        chosen = zip(window, lane_of, strict=True)
        found += [each.number for each, lane in chosen if lanes[lane].tell(each.key, vector_of(each.text))]
        balance = splitter.end_window({})
        assert balance is not None
        for move in balance.moves:
            lanes[move.target].take(lanes[move.source].give([move.group]))
        splitter.moved(balance.moves)
        moved += len(balance.moves)
    assert moved > 20
    assert found == numbers(texts)


def test_a_key_in_two_lanes_has_false_stories() -> None:
    texts = [said(0, 7, "storm"), said(1, 7, "storm"), said(2, 7, "storm")]
    lane_of = by_two_choices(np.array([7, 7, 7], dtype=np.intp), np.zeros(LANES)).tolist()
    assert numbers(texts) == [0]
    assert told(texts, [2, 2, 2]) == [0]
    assert told(texts, lane_of) == [0, 1]


def test_partial_key_grouping_tells_more_stories_of_generated_texts() -> None:
    texts = list(generate_texts(3_000, seed=3))
    lane_of = by_two_choices(np.array([each.key for each in texts], dtype=np.intp), np.zeros(LANES)).tolist()
    wanted = numbers(texts)
    assert told(texts, [each.key % LANES for each in texts]) == wanted
    assert set(told(texts, lane_of)) > set(wanted)


@given(TEXTS)
def test_distances_are_the_oracles(said_of: list[tuple[int, str]]) -> None:
    kept: dict[int, KeptTexts] = {}
    texts = [said(number, key, text) for number, (key, text) in enumerate(said_of)]
    distances = [kept.setdefault(each.key, KeptTexts()).tell(vector_of(each.text)) for each in texts]
    wanted = {row["number"]: row["distance"] for row in stories_of(texts)}
    assert {number: distance for number, distance in enumerate(distances) if distance is not None} == wanted


def test_tweets_are_read_by_id_once_and_with_the_time_of_their_ids(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write('tweet id, tweet, label\n\'324646664491192320\',"storm, and ""flood""",on-topic\n')
    (tmp_path / "more" / "b.csv").write_text('Tweet ID,Tweet Text\n"0",first\n"324646664491192320",again\n')
    texts = list(read_tweets(tmp_path))
    assert [(each.number, each.text) for each in texts] == [(0, "first"), (1, 'storm, and "flood"')]
    assert texts[0].at == datetime(2010, 11, 4, 1, 42, 54, 657_000, UTC)
    assert texts[1].at - texts[0].at == timedelta(milliseconds=324646664491192320 >> 22)
    assert [each.key for each in texts] == [key_of(each.text) for each in texts]
    assert written(0) == texts[0].at


def test_a_line_that_is_no_tweet_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no \*\.csv"):
        list(read_tweets(tmp_path))
    (tmp_path / "a.csv").write_text("tweet id, tweet\n'x',storm\n")
    with pytest.raises(ValueError, match=r"a\.csv:2: not a tweet"):
        list(read_tweets(tmp_path))
    (tmp_path / "a.csv").write_text("tweet id, tweet\n'7',storm\n'8'\n")
    with pytest.raises(ValueError, match=r"a\.csv:3: not a tweet"):
        list(read_tweets(tmp_path))


def test_generated_texts_repeat_themselves_and_begin_new_topics() -> None:
    texts = list(generate_texts(2_000, seed=3))
    assert texts == list(generate_texts(2_000, seed=3))
    assert texts != list(generate_texts(2_000, seed=4))
    assert all(one.at <= other.at for one, other in pairwise(texts))
    repeated = sum(each.text.startswith("RT @") for each in texts)
    assert 500 < repeated < 800
    # Within one key, as if nothing was hashed: only what shares no longer word with the last texts is new.
    together = [said(each.number, 0, each.text) for each in texts]
    assert 0 < len(numbers(together)) < 500 < len(numbers(texts))


@pytest.mark.skipif(not TWEETS.exists(), reason="the tweets are not here")
def test_real_tweets_are_read_and_told() -> None:
    texts = list(read_tweets(TWEETS))
    assert len(texts) > 60_000
    assert all(one.at <= other.at for one, other in pairwise(texts))
    lane = StoryLane()
    some = texts[:5_000]
    assert [each.number for each in some if lane.tell(each.key, vector_of(each.text))] == numbers(some)
