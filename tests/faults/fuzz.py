"""Fuzzes the link's frames: ``python tests/faults/fuzz.py [FRAMES] [SEED]``; inputs that break it go to the corpus."""

from __future__ import annotations

import hashlib
import sys
import time

from tests.faults.fuzzing import CORPUS, Fuzzer


def main(frames: int, seed: int) -> int:
    """Run in steps, and print the progress."""
    print(f"{frames} frames, seed {seed}")
    fuzzer = Fuzzer(seed)
    started_s = time.monotonic()
    done = 0
    while done < frames:
        done = min(frames, done + 500_000)
        verdict = fuzzer.run(done)
        print(f"  {done:>11,} frames, {done / (time.monotonic() - started_s):,.0f}/s, {len(verdict.accepted)} accepted")
    for wire in [*verdict.accepted, *verdict.hung]:
        CORPUS.mkdir(exist_ok=True)
        (CORPUS / f"{hashlib.sha256(wire).hexdigest()[:16]}.bin").write_bytes(wire)
    print(
        f"refused {verdict.refused:,}, incomplete {verdict.incomplete:,}, whole in spite of forgery "
        f"{verdict.forged_whole:,}; accepted {len(verdict.accepted)}, over 100 ms {len(verdict.hung)}, "
        f"slowest {1000 * verdict.slowest_s:.1f} ms"
    )
    return 1 if verdict.accepted or verdict.hung else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main(int(words[0]) if words else 10_000_000, int(words[1]) if len(words) > 1 else 1))
