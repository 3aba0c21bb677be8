from __future__ import annotations

import os

import pytest

from tests.faults.figures import Figures
from tests.faults.fuzzing import Fuzzer, corpus, offered

FRAMES = 1_000_000


@pytest.mark.timeout(600)
def test_a_million_frames_that_no_honest_peer_sends(figures: Figures) -> None:
    seed = int(os.environ.get("SPILLWAY_SEED", "20261121"))
    print(f"seed {seed}")
    verdict = Fuzzer(seed).run(FRAMES)
    assert verdict.frames == FRAMES
    assert verdict.accepted == []
    assert verdict.hung == []
    # The fuzzer itself works: it gets to every stage of the decoder.
    assert min(verdict.refused, verdict.incomplete, verdict.forged_whole) > FRAMES // 100
    figures.add(
        "fuzzed frames",
        times=FRAMES,
        outcome="0 accepted, 0 crashes",
        figure=f"slowest {1000 * verdict.slowest_s:.1f} ms",
        goal="none accepted, <= 100 ms",
    )


def test_what_is_kept_in_the_corpus_is_survived() -> None:
    kept = list(corpus())
    assert len(kept) > 20
    for path in kept:
        offered(path.read_bytes())
