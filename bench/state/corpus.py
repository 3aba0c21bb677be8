"""Queries of all kinds at home only, and at home and on a VM with moves at random moments: are the results the same?

A run that was interrupted goes on where it was: each verdict is kept in ``build/corpus.jsonl`` until all are there.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from planning.document import table
from pyspark.sql import SparkSession

from engines.spark.session import build_session
from tests.hybrid.cases import CASES
from tests.hybrid.places import two_places
from tests.hybrid.verdicts import Jury, Verdict, by_class, by_kind

SEED = 17
KEPT = Path(__file__).parents[2] / "build" / "corpus.jsonl"
REASON_LETTERS = 160
COUNTS = (
    "queries",
    "identical",
    "of these equal to a batch",
    "of these also in parts",
    "moves with state",
    "VMs lost",
    "stay at home",
    "refused",
    "wrong",
)


def report() -> str:
    """Run the corpus, and return the counts and the reasons.

    Raises:
        RuntimeError: some results differ.
    """
    print(f"seed {SEED}", file=sys.stderr)
    KEPT.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        session = build_session("local[1]", Path(name) / "oracle", 1)
        try:
            asyncio.run(_judge(Path(name), session, _kept()))
        finally:
            session.stop()
    verdicts = list(_kept().values())
    wrong = [str(each) for each in verdicts if each.outcome == "wrong"]
    if wrong:
        raise RuntimeError("\n".join(wrong))
    KEPT.unlink()
    return "\n\n".join((*_tables(verdicts), _reasons(verdicts)))


def _kept() -> Mapping[str, Verdict]:
    """Return the verdicts that are known, by query; one that was wrong is looked at again."""
    lines = KEPT.read_bytes().splitlines() if KEPT.exists() else []
    return {each.name: each for each in (msgspec.json.decode(line, type=Verdict) for line in lines)}


async def _judge(folder: Path, session: SparkSession, known: Mapping[str, Verdict]) -> None:
    async with two_places(folder) as places:
        jury = Jury(folder / "queries", places, session, SEED, losses=True, note=_note)
        await jury.judge_all([case for case in CASES if case.name not in known or known[case.name].outcome == "wrong"])


def _note(verdict: Verdict) -> None:
    print(verdict, file=sys.stderr, flush=True)
    with KEPT.open("ab") as file:
        file.write(msgspec.json.encode(verdict) + b"\n")


def _tables(verdicts: Sequence[Verdict]) -> tuple[str, str]:
    return table(("kind", *COUNTS), by_kind(verdicts)), table(("class", *COUNTS), by_class(verdicts))


def _reasons(verdicts: Sequence[Verdict]) -> str:
    said = Counter((each.outcome, _short(each.reason)) for each in verdicts if each.reason)
    said.update(("not in parts", _short(each.undivided)) for each in verdicts if each.undivided)
    rows = [(*each, count) for each, count in said.most_common()]
    return table(("outcome", "reason", "queries"), rows, text_columns=2)


def _short(reason: str) -> str:
    words = " ".join(reason.replace("|", "or").split())
    return words if len(words) <= REASON_LETTERS else f"{words[:REASON_LETTERS]}…"
