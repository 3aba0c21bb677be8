"""First-story detection over five lanes by KG, PKG, LPTF and DLB (Dynamic Load Balancing, section 4), and in Spark.

The texts come in their own order, and in one that is drawn as the paper's: keys from a Zipf distribution whose exponent
alternates, other hot keys in each phase, and of each key its texts in order, again from the first one after the last. A
decision follows each window of texts. The paper's 40 minutes are shorter here, with the same proportions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, groupby
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
from planning.document import table
from state.balancing import least_possible
from state.divisions import (
    DLB,
    KEYS,
    LANES,
    MOVED_MOST,
    THETA,
    Balanced,
    Division,
    Hashed,
    LongestFirst,
    TwoChoices,
    loads_of,
)
from state.workloads import Workload, table_of

from engines.stories.generator import generate_texts
from engines.stories.texts import SCHEMA_DDL, ShortText, read_tweets
from engines.stories.words import TextVector, vector_of
from patterns.lanes import Told, Window, tell
from policies.arrays import IntArray
from policies.keys.balancing import BalanceTerms
from tests.workloads.story_oracle import stories_of

SEED = 1
GENERATED, GENERATED_FOR_SPARK = 60_000, 10_000
WINDOW = 2_000
OWN_ORDER = 0.0
"""Stands for the exponent where nothing is drawn."""
EXPONENTS = ((0.2, 1.5), (0.2, 1.0))
"""Low and high. With the second pair, which is not in the paper, no key has more than an equal part of the texts."""
PHASE_WINDOWS = (8, 16, 8, 16, 8, 8)
"""The windows of each phase, low and high in turn: as the paper's 5 and 10 minutes, 40 minutes in all."""
REPEATS = 3
LEAST_OF_LPTF = 0.01


class Compared(NamedTuple):
    """A division that is compared.

    Attributes:
        name: what the table calls it.
        lanes: how many it has.
        make: makes it.
        own_order: what the paper says of it with the texts in their own order.
        drawn: the same with drawn keys.
    """

    name: str
    lanes: int
    make: Callable[[], Division]
    own_order: str = ""
    drawn: str = ""


COMPARED_WITH = (
    Compared(
        *("KG", len(LANES), Hashed),
        "2,726,628 texts in 40 min; RSTD up to 70 %; 6,546 stories",
        "2,586,169 texts; RSTD 3 % and 77 %",
    ),
    Compared("KG, six lanes", 6, lambda: Hashed(6), "2,790,362 texts", "2,653,789 texts"),
    Compared("PKG", len(LANES), TwoChoices, "7,563 stories, 13.4 % of them false", "2,831,477 texts"),
    Compared(
        *("LPTF", len(LANES), lambda: LongestFirst(LEAST_OF_LPTF)),
        "9 times; 76 % of the keys, 677,886 texts",
        "12 times; more than 600,000 texts each time",
    ),
)
PAPER_OF_DLB = {
    "DLB-L": (
        "2,941,246 texts; RSTD about 20 %; 7 times; 30 % of the keys, 380,000 texts at most",
        "10 times; 47.5 % of the keys, 294,881 texts",
    ),
    "DLB-H": (
        "7 times; 10 % of the keys, 70,400 texts at most; 6,546 stories",
        "2,795,336 texts; RSTD about 40 % at 1.5; 10 times; 5 % of the keys, 57,750 texts",
    ),
}


def report(data: Path | None) -> str:
    """Measure; return the tables."""
    name = "the tweets" if data is not None else "generated texts"
    texts = list(read_tweets(data / "tweets") if data is not None else generate_texts(GENERATED, SEED))
    vectors, keys = [vector_of(each.text) for each in texts], np.array([each.key for each in texts], dtype=np.intp)
    parts = [
        f"{len(texts):,} texts ({name}) in their own order:",
        _table(list(in_order(keys, vectors)), (OWN_ORDER,), [each.own_order for each in compared()]),
    ]
    for pair in EXPONENTS:
        stream = list(drawn(keys, vectors, pair))
        papers = [each.drawn if pair == EXPONENTS[0] else "" for each in compared()]
        count = f"{sum(len(window.keys) for window in stream):,} texts"
        parts.append(f"{count}, their keys drawn with the exponents {pair[0]} and {pair[1]} in turn:")
        parts.append(_table(stream, pair, papers))
    parts += [
        "The query in Spark, through a gateway at home:",
        table_of(spark_runs(texts if data is not None else None)),
    ]
    return "\n\n".join(parts)


def compared() -> list[Compared]:
    """Return all divisions; those of DLB by the splitter of queries, also with the default bound of moved keys."""
    found = list(COMPARED_WITH)
    for name, pick, _ in DLB:
        for most, bound in ((1.0, ""), (MOVED_MOST, f", at most {100 * MOVED_MOST:.0f} % of the keys")):
            terms = BalanceTerms(theta=THETA, pick=pick, moved_most=most)
            paper = PAPER_OF_DLB[name] if not bound else ("", "")
            found.append(Compared(name + bound, len(LANES), partial(Balanced, terms), *paper))
    return found


def in_order(keys: IntArray, vectors: Sequence[TextVector]) -> Iterator[Window]:
    """Yield the windows of the texts in their own order."""
    for first in range(0, len(keys), WINDOW):
        yield Window(OWN_ORDER, keys[first : first + WINDOW], vectors[first : first + WINDOW])


def drawn(keys: IntArray, vectors: Sequence[TextVector], exponents: tuple[float, float]) -> Iterator[Window]:
    """Yield windows whose keys are drawn from those that have texts, with both exponents in turn."""
    rng = np.random.default_rng(SEED)
    texts_of = {
        key: [at for _, at in found]
        for key, found in groupby(sorted(zip(keys.tolist(), range(len(keys)), strict=True)), key=lambda pair: pair[0])
    }
    drawn_so_far = dict.fromkeys(texts_of, 0)
    for exponent, windows in zip(cycle(exponents), PHASE_WINDOWS, strict=False):
        chances = np.arange(1, len(texts_of) + 1) ** -exponent
        order = rng.permutation(np.array(list(texts_of), dtype=np.intp))
        for _ in range(windows):
            chosen = order[rng.choice(len(order), WINDOW, p=chances / chances.sum())]
            texts = []
            for key in chosen.tolist():
                texts.append(vectors[texts_of[key][drawn_so_far[key] % len(texts_of[key])]])
                drawn_so_far[key] += 1
            yield Window(exponent, chosen, texts)


def spark_runs(tweets: Sequence[ShortText] | None) -> Iterator[Workload]:
    """Yield the runs of the query in Spark."""
    function = "engines.stories.firststories:first_stories"
    generated = list(generate_texts(GENERATED_FOR_SPARK, SEED))
    for name, texts in (("tweets", tweets), ("generated", generated)):
        if texts is not None:
            yield Workload(f"first stories, {name}", texts, function, SCHEMA_DDL, stories_of, "at", ordered=False)


def _table(stream: Sequence[Window], exponents: Sequence[float], papers: Sequence[str]) -> str:
    """Run all divisions, and return their table.

    Raises:
        AssertionError: a division that moves whole keys told other stories than key grouping, or two runs differ.
    """
    runs: list[list[Told]] = [[] for _ in compared()]
    for _ in range(REPEATS):
        for found, each in zip(runs, compared(), strict=True):
            found.append(tell(each.make(), each.lanes, stream))
    wanted = set(runs[0][0].stories)
    rows = []
    for found, each, paper in zip(runs, compared(), papers, strict=True):
        stories = set(found[0].stories)
        assert each.name == "PKG" or stories == wanted, f"{each.name} told other stories"
        assert all(other.stories == found[0].stories for other in found), f"two runs of {each.name} differ"
        told = (f"{len(stories):,}", f"{len(wanted - stories):,}", f"{len(stories - wanted):,}")
        rows.append((each.name, paper, *_measured(found, runs[0], exponents), *told))
    least = Told(windows=[(at.exponent, least_possible(loads_of(at.keys)), 0, 0.0) for at in stream])
    scores = [_scores(least.rstd(exponent)) for exponent in exponents]
    header = _header(exponents)
    rates = [""] * (len(header) - 8 - len(scores))
    rows.append(("least possible with whole keys", "", *rates, *scores, *[""] * 6))
    return table(header, rows, text_columns=2)


def _measured(found: Sequence[Told], grouped: Sequence[Told], exponents: Sequence[float]) -> tuple[str, ...]:
    """Return the cells of throughput, RSTD, and what was moved."""
    first = found[0]
    per_s = median(each.rate_per_s() for each in found)
    cells = [f"{per_s:,.0f} ({per_s / median(each.rate_per_s() for each in grouped):.2f})"]
    if len(exponents) > 1:
        cells += [f"{median(each.rate_per_s(exponent) for each in found):,.0f}" for exponent in exponents]
    cells += [_scores(first.rstd(exponent)) for exponent in exponents]
    keys = f"{100 * fmean(first.keys) / KEYS:.1f} %, {100 * max(first.keys) / KEYS:.1f} %" if first.keys else "none"
    texts = f"{fmean(first.texts):,.0f}" if first.texts else "none"
    return (*cells, f"{len(first.keys)}", keys, texts)


def _scores(scores: Sequence[float]) -> str:
    return f"{fmean(scores):.1f} %, {max(scores):.1f} %"


def _header(exponents: Sequence[float]) -> list[str]:
    header = ["division", "the paper", "texts per second (times KG's)"]
    at = [f" at {exponent}" for exponent in exponents] if len(exponents) > 1 else [""]
    header += [f"texts per second{each}" for each in at if each] + [f"RSTD{each} (mean, most)" for each in at]
    header += ["times rebalanced", "keys moved (mean, most)", "texts moved (mean)", "stories", "missing", "false"]
    return header
