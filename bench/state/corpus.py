"""Queries of all kinds at home only, and at home and on a VM with moves at random moments: are the results the same?"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from planning.document import table
from pyspark.sql import SparkSession

from engines.spark.session import build_session
from tests.hybrid.cases import CASES
from tests.hybrid.places import two_places
from tests.hybrid.verdicts import Jury, Verdict, by_kind

SEED = 17
HEAD = (
    "kind of query",
    "queries",
    "identical in two places",
    "of these also equal to a batch",
    "moves with state",
    "VMs lost",
    "stays at home",
    "refused",
    "wrong",
)


def report() -> str:
    """Run the corpus, and return the counts and the reasons.

    Raises:
        RuntimeError: some results differ.
    """
    print(f"seed {SEED}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        session = build_session("local[1]", Path(name) / "oracle", 1)
        try:
            verdicts = asyncio.run(_judged(Path(name), session))
        finally:
            session.stop()
    wrong = [str(each) for each in verdicts if each.outcome == "wrong"]
    if wrong:
        raise RuntimeError("\n".join(wrong))
    return f"{table(HEAD, by_kind(verdicts))}\n\n{_reasons(verdicts)}"


async def _judged(folder: Path, session: SparkSession) -> list[Verdict]:
    async with two_places(folder) as places:
        jury = Jury(folder / "queries", places, session, SEED, losses=True, note=_note)
        return await jury.judge_all(CASES)


def _note(verdict: Verdict) -> None:
    print(verdict, file=sys.stderr, flush=True)


def _reasons(verdicts: Sequence[Verdict]) -> str:
    counts = Counter(each.reason for each in verdicts if each.reason)
    return table(("reason", "queries"), counts.most_common())
