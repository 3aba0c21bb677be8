from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import zstandard

from engines.email.generator import generate_mail
from engines.email.mailbox import Mail
from engines.email.oracle import answer

COUNT = 4_096


@pytest.fixture(scope="module")
def mails() -> list[Mail]:
    return list(generate_mail(COUNT, seed=7))


def share(flags: list[bool]) -> float:
    return sum(flags) / len(flags)


def test_equal_seeds_give_equal_mails_and_prefixes(mails: list[Mail]) -> None:
    assert list(generate_mail(700, seed=7)) == mails[:700]
    assert next(generate_mail(1, seed=8)) != mails[0]


def test_ids_are_distinct_and_times_do_not_go_back(mails: list[Mail]) -> None:
    assert len({mail.message_id for mail in mails}) == COUNT
    assert all(before.sent <= after.sent for before, after in pairwise(mails))
    assert (mails[-1].sent - mails[0].sent).total_seconds() / COUNT == pytest.approx(625, rel=0.1)


def test_bodies_have_the_corpus_lengths(mails: list[Mail]) -> None:
    lengths = np.array([len(mail.body) for mail in mails])
    assert lengths.mean() == pytest.approx(1322, rel=0.15)
    for percent, characters in ((10, 68), (50, 611), (90, 3027), (99, 10406)):
        assert np.percentile(lengths, percent) == pytest.approx(characters, rel=0.25)


def test_words_and_paragraphs_are_as_many_as_in_the_corpus(mails: list[Mail]) -> None:
    answers = [one for mail in mails if (one := answer(mail))]
    assert np.mean([one.words for one in answers]) == pytest.approx(177, rel=0.25)
    assert np.mean([one.paragraphs for one in answers]) == pytest.approx(7.2, rel=0.3)
    assert share([one.subject.startswith("NONE ") for one in answers]) == pytest.approx(0.165, abs=0.06)


def test_word_frequencies_fall_as_in_the_corpus(mails: list[Mail]) -> None:
    counts = Counter(word.strip(",.").lower() for mail in mails for word in mail.body.split())
    ranked = [count / counts.total() for _, count in counts.most_common()]
    for rank, measured in ((1, 0.041), (10, 0.0102), (100, 0.00099), (1000, 0.00011)):
        assert measured / 2 < ranked[rank - 1] < measured * 2


def test_senders_and_recipients_are_as_in_the_corpus(mails: list[Mail]) -> None:
    assert share([mail.sender.endswith("@enron.com") for mail in mails]) == pytest.approx(0.861, abs=0.02)
    assert share([bool(mail.to) for mail in mails]) == pytest.approx(0.985, abs=0.01)
    assert share([bool(mail.cc) for mail in mails]) == pytest.approx(0.226, abs=0.03)
    assert all(mail.bcc == mail.cc for mail in mails)
    assert np.mean([len(mail.to) for mail in mails if mail.to]) == pytest.approx(4.7, rel=0.25)
    assert np.mean([len(mail.cc) for mail in mails if mail.cc]) == pytest.approx(3.1, rel=0.25)
    addresses = [address for mail in mails for address in mail.to]
    assert share(["enron.com" in address for address in addresses]) == pytest.approx(0.716, abs=0.05)
    assert share([not mail.subject for mail in mails]) == pytest.approx(0.069, abs=0.02)


def test_bodies_compress_as_in_the_corpus(mails: list[Mail]) -> None:
    bodies = [mail.body.encode() for mail in mails]
    columns = [b"".join(bodies[start : start + 256]) for start in range(0, COUNT, 256)]
    plain = sum(map(len, bodies))
    assert plain / sum(len(zstandard.compress(column, 3)) for column in columns) == pytest.approx(2.95, rel=0.1)
    assert plain / sum(len(zstandard.compress(body, 3)) for body in bodies) == pytest.approx(2.08, rel=0.15)


def test_the_three_names_occur_about_as_often_as_in_the_corpus() -> None:
    mails = list(generate_mail(20_000, seed=3))
    for name, measured in (("Kenneth Lay", 0.0046), ("Jeffrey Skilling", 0.0007), ("Andrew Fastow", 0.0005)):
        assert measured / 2 < share([name in mail.body for mail in mails]) < measured * 2
