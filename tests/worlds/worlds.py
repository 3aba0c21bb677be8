"""Simulates many worlds; for a broken promise it prints the command that repeats the world.

python tests/worlds/worlds.py [COUNT] [FIRST_SEED]      COUNT worlds (1000) from FIRST_SEED (1) on
python tests/worlds/worlds.py --trace SEED              one world, with everything that happened in it
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

if __name__ == "__main__":
    # Matrices are small here: the threads of numpy's BLAS would mostly wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from gateway.simulate.runs.outcomes import WorldOutcome
from gateway.simulate.runs.promises import BrokenPromiseError
from gateway.simulate.runs.world import World
from tests.worlds.drawing import drawn


def live(seed: int, *, keep_trace: bool = False, thorough: bool = False) -> tuple[World, WorldOutcome | str]:
    """Simulate a world; return it with its outcome, or with its error."""
    world = World(drawn(seed), keep_trace=keep_trace, thorough=thorough)
    try:
        return world, world.run()
    except (BrokenPromiseError, AssertionError, KeyError, ValueError) as error:
        return world, f"{type(error).__name__}: {error}"


def outcome_of(seed: int) -> tuple[int, WorldOutcome | str, float]:
    """Simulate a world; return its seed, its outcome, and the CPU seconds that it took."""
    begun_s = time.process_time()
    _, outcome = live(seed)
    return seed, outcome, time.process_time() - begun_s


def live_through(seeds: range) -> int:
    """Simulate worlds, one on each core at a time; return how many broke a promise."""
    begun_s, cpu_s, steps, events, broken = time.monotonic(), 0.0, 0, 0, 0
    with ProcessPoolExecutor() as pool:
        for seed, outcome, took_s in pool.map(outcome_of, seeds, chunksize=5):
            cpu_s += took_s
            if isinstance(outcome, str):
                broken += 1
                print(f"world {seed}: {outcome}\n  repeat it: python tests/worlds/worlds.py --trace {seed}", flush=True)
            else:
                steps += outcome.steps
                events += sum(query.events for query in outcome.queries)
    took_s = time.monotonic() - begun_s
    print(
        f"{len(seeds)} worlds, {steps} steps, {events} events in {took_s:.0f} s ({cpu_s:.0f} CPU s); "
        f"{broken} broke a promise"
    )
    return broken


def show(seed: int) -> int:
    """Print everything that happened in a world; return 1 if it broke a promise."""
    world, outcome = live(seed, keep_trace=True)
    sys.stdout.writelines(world.trace.lines)
    print(outcome)
    return int(isinstance(outcome, str))


def main(arguments: list[str]) -> int:
    """Run the command that the arguments name."""
    if arguments[:1] == ["--trace"]:
        return show(int(arguments[1]))
    count = int(arguments[0]) if arguments else 1000
    first = int(arguments[1]) if len(arguments) > 1 else 1
    return int(live_through(range(first, first + count)) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
