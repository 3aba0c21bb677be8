"""Synthetic mail for machines without the corpus: made-up words with the statistics of the Enron corpus.

Each figure below was measured on the 4,146 mails of September 2000 in the Enron corpus (the CALO/FERC release, read
with ``engines.email.mailbox``). The generator reproduces them, and ``tests/email`` checks that.

=============================================  ========  ===============================================
figure                                         corpus    how it is made here
=============================================  ========  ===============================================
characters in a body, mean                     1,322     quantiles below, log-linear between
  percentiles 10 / 50 / 90 / 99                68 / 611 / 3,027 / 10,406
words of a body (longer than one character,
  split on single blanks), mean                177       follows from words and separators
paragraphs, mean / characters in each          7.2 / 185 share of blank lines among separators
word frequency                                 4.1 % the first, 1.0 % the 10th, 0.10 % the 100th, 0.011 % the
                                               1,000th: Zipf-Mandelbrot, exponent 1.02, offset 2.3
sender ends with @enron.com                    86.1 %    drawn
mails with To / with Cc (Bcc repeats Cc)       98.5 % / 22.6 %
addresses in To / in Cc, where there are any   4.7 / 3.1 one (75 %) or log-normal / log-normal
addresses in To that contain enron.com         71.6 %    drawn
mails without subject / words in a subject     6.9 % / 4.0
zstd-3 over a column of 256 bodies             2.9-3.0x  share of phrases said again, see ``_PHRASES``
zstd-3 over one body at a time                 2.1x      follows
mails that name Kenneth Lay                    0.46 %    drawn
mails that name Jeffrey Skilling               0.07 %    drawn
mails that name Andrew Fastow                  none      0.05 %, so that each replacement happens
mails in which no word occurs twice            16.5 %    follows
=============================================  ========  ===============================================
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from engines.email.mailbox import Mail

BLOCK_MAILS = 512

_VOCABULARY = 30_000
_ZIPF_EXPONENT = 1.02
_ZIPF_OFFSET = 2.3

# A mail is a sequence of phrases from a fixed stock, as real mail repeats phrases, signatures and quotes. Fewer
# phrases, longer ones or more quoting compress better; these values meet the corpus' zstd ratios.
_PHRASES = 40_000
_PHRASE_WORDS_MEAN = 3.0
_PHRASE_ZIPF_EXPONENT = 0.72
_QUOTING_SHARE = 0.31  # the corpus' share of mails with a forwarded or answered one below

_LENGTH_PERCENT = np.array([0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 100], dtype=float)
_LENGTH_CHARACTERS = np.array([2, 14, 43, 68, 193, 611, 1557, 3027, 4513, 10406, 17506, 25294, 90260], dtype=float)

_SEPARATORS = (" ", "\n", "\n\n", "    ", ", ", ". ")
_SEPARATOR_SHARES = np.array([0.70, 0.105, 0.03, 0.035, 0.06, 0.07])

_NAMES = ("Kenneth Lay", "Jeffrey Skilling", "Andrew Fastow")
_NAME_SHARES = np.array([0.0046, 0.0007, 0.0005])

_SENDERS = 800
_RECIPIENTS = 5_000
_MEAN_GAP_S = 625.0
_FIRST_SENT = datetime(2000, 9, 1, tzinfo=UTC)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def generate_mail(count: int, seed: int) -> Iterator[Mail]:
    """Yield ``count`` mails in order of ``sent``; equal seeds give equal mails, a shorter count a prefix of them."""
    return islice(_mails(seed), count)


def _mails(seed: int) -> Iterator[Mail]:
    stock_rng, mail_rng = np.random.default_rng(seed).spawn(2)
    stock = _Stock(stock_rng)
    sent, number = _FIRST_SENT, 0
    while True:
        block = _Block(stock, mail_rng)
        for index in range(BLOCK_MAILS):
            sent += timedelta(seconds=float(block.gaps_s[index]))
            yield block.mail(index, sent.replace(microsecond=0), f"<{number:010d}.{seed}.mail@generator.example>")
            number += 1


class _Stock:
    """The phrases and addresses that all mails of a seed draw from, with their probabilities."""

    def __init__(self, rng: np.random.Generator) -> None:
        words = np.array(_vocabulary(rng), dtype=object)
        self.phrases = _phrases(words, rng)
        self.phrase_characters = float(np.mean([len(phrase) for phrase in self.phrases[:5000]]))
        self.phrase_edges = _cumulative(len(self.phrases), _PHRASE_ZIPF_EXPONENT, 0.0)
        self.inside = [f"{words[i]}.{words[j]}@enron.com" for i, j in rng.integers(100, 9000, (_RECIPIENTS, 2))]
        self.outside = [f"{words[i]}@{words[j]}.example" for i, j in rng.integers(100, 9000, (_RECIPIENTS, 2))]

    def addresses(self, inside: NDArray[np.bool_], which: Ints) -> list[str]:
        """Return an address for each index in ``which``, inside this company or outside."""
        return [
            (self.inside if ours else self.outside)[i] for ours, i in zip(inside.tolist(), which.tolist(), strict=True)
        ]


class _Block:
    """The random parts of ``BLOCK_MAILS`` mails, drawn at once; all arrays have shape (BLOCK_MAILS,)."""

    def __init__(self, stock: _Stock, rng: np.random.Generator) -> None:
        self._stock = stock
        self.gaps_s = rng.exponential(_MEAN_GAP_S, BLOCK_MAILS)
        percent = rng.uniform(0, 100, BLOCK_MAILS)
        self._characters = np.exp(np.interp(percent, _LENGTH_PERCENT, np.log(_LENGTH_CHARACTERS))).astype(np.int64)
        self._texts = self._drawn_phrases((self._characters / stock.phrase_characters * 1.1).astype(np.int64) + 2, rng)
        self._quotes = rng.random(BLOCK_MAILS) < _QUOTING_SHARE
        subject_words = np.where(rng.random(BLOCK_MAILS) < 0.069, 0, rng.integers(1, 3, BLOCK_MAILS))
        self._subjects = self._drawn_phrases(subject_words, rng)
        self._senders = stock.addresses(rng.random(BLOCK_MAILS) < 0.861, _skewed(_SENDERS, BLOCK_MAILS, rng))
        self._to = self._drawn_addresses(_to_counts(rng), rng)
        self._cc = self._drawn_addresses(_cc_counts(rng), rng)
        self._named = rng.random((BLOCK_MAILS, len(_NAMES))) < _NAME_SHARES

    def mail(self, index: int, sent: datetime, message_id: str) -> Mail:
        """Return one mail of the block."""
        phrases = self._texts[index]
        if self._quotes[index]:
            half = len(phrases) // 2
            phrases = [*phrases[:half], "\n\n", *phrases[:half], *phrases[half : half + 2]]
        if self._named[index].any():
            names = [name for name, there in zip(_NAMES, self._named[index], strict=True) if there]
            phrases = [f"{name} " for name in names] + phrases
        return Mail(
            message_id=message_id,
            sent=sent,
            sender=self._senders[index],
            to=self._to[index],
            cc=self._cc[index],
            bcc=self._cc[index],
            subject=" ".join("".join(self._subjects[index]).split()),
            body="".join(phrases)[: self._characters[index]],
        )

    def _drawn_phrases(self, counts: Ints, rng: np.random.Generator) -> list[list[str]]:
        drawn = np.searchsorted(self._stock.phrase_edges, rng.random(int(counts.sum())))
        return _cut([self._stock.phrases[i] for i in drawn.tolist()], counts)

    def _drawn_addresses(self, counts: Ints, rng: np.random.Generator) -> list[list[str]]:
        total = int(counts.sum())
        return _cut(self._stock.addresses(rng.random(total) < 0.716, _skewed(_RECIPIENTS, total, rng)), counts)


def _vocabulary(rng: np.random.Generator) -> list[str]:
    """Return distinct made-up words, the most frequent first and, as in any language, short."""
    consonants, vowels = "bcdfghjklmnprstvwyz", "aeiou"
    words: dict[str, None] = {}
    while len(words) < _VOCABULARY:
        rank = len(words)
        syllables = 1 if rank < 60 else int(rng.integers(1, 4)) if rank < 1500 else int(rng.integers(2, 6))
        picks = rng.integers(0, 19 * 5 * 19, syllables).tolist()
        word = "".join(consonants[p % 19] + vowels[p // 19 % 5] for p in picks)
        word += consonants[picks[0] // 95] if rank % 3 else ""
        if rank in {3, 5, 7}:
            word = "aiu"[rank // 2 - 1]
        elif rank > 60 and rank % 20 == 0:
            word = str(int(rng.integers(1, 10_000)))
        words.setdefault(word)
    return list(words)


def _phrases(words: NDArray[np.object_], rng: np.random.Generator) -> list[str]:
    """Return phrases of a few words, each with its closing separator; one in four begins with a capital."""
    counts = rng.geometric(1 / _PHRASE_WORDS_MEAN, _PHRASES)
    total = int(counts.sum())
    drawn = words[np.searchsorted(_cumulative(_VOCABULARY, _ZIPF_EXPONENT, _ZIPF_OFFSET), rng.random(total))]
    separators = rng.choice(np.array(_SEPARATORS, dtype=object), total, p=_SEPARATOR_SHARES)
    texts = ["".join(pieces) for pieces in _cut((drawn + separators).tolist(), counts)]
    return [
        text.capitalize() if capital else text for text, capital in zip(texts, rng.random(_PHRASES) < 0.25, strict=True)
    ]


def _cumulative(size: int, exponent: float, offset: float) -> Floats:
    """Return the cumulative Zipf-Mandelbrot shares, 1 / (rank + offset) ** exponent, of ``size`` ranks."""
    shares = 1.0 / (np.arange(1, size + 1) + offset) ** exponent
    edges: Floats = np.cumsum(shares / shares.sum())
    edges[-1] = 1.0
    return edges


def _skewed(size: int, count: int, rng: np.random.Generator) -> Ints:
    """Return ``count`` indices below ``size``, small ones much more often: few people write most mail."""
    return (size * rng.random(count) ** 3).astype(np.int64)


def _to_counts(rng: np.random.Generator) -> Ints:
    many = np.clip(rng.lognormal(np.log(4.9), 1.5, BLOCK_MAILS), 2, 333).astype(np.int64)
    counts = np.where(rng.random(BLOCK_MAILS) < 0.7546, 1, many)
    return np.where(rng.random(BLOCK_MAILS) < 0.985, counts, 0).astype(np.int64)


def _cc_counts(rng: np.random.Generator) -> Ints:
    some = np.clip(np.rint(rng.lognormal(0.7, 0.95, BLOCK_MAILS)), 1, 39).astype(np.int64)
    return np.where(rng.random(BLOCK_MAILS) < 0.226, some, 0).astype(np.int64)


def _cut(items: list[str], counts: Ints) -> list[list[str]]:
    """Return consecutive pieces of ``items`` with the lengths in ``counts``."""
    ends = np.cumsum(counts).tolist()
    return [items[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]
