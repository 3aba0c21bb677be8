"""Live through many simulated worlds; a broken promise prints the line that repeats it.

python tests/worlds/worlds.py [COUNT] [FIRST_SEED]      COUNT worlds (1000) from FIRST_SEED (1) on
python tests/worlds/worlds.py --trace SEED              one world, with all that happened in it
"""

from __future__ import annotations

import sys
import time

from gateway.simulate.options import drawn
from gateway.simulate.query import BrokenPromiseError
from gateway.simulate.world import World, WorldOutcome


def live(seed: int, *, keep_trace: bool = False, thorough: bool = False) -> tuple[World, WorldOutcome | str]:
    """Live through a world; return it with its outcome, or with what went wrong."""
    world = World(drawn(seed), keep_trace=keep_trace, thorough=thorough)
    try:
        return world, world.run()
    except (BrokenPromiseError, AssertionError, KeyError, ValueError) as error:
        return world, f"{type(error).__name__}: {error}"


def live_through(seeds: range) -> int:
    """Live through worlds; return how many broke a promise."""
    begun_s, steps, events, broken = time.monotonic(), 0, 0, 0
    for seed in seeds:
        _, outcome = live(seed)
        if isinstance(outcome, str):
            broken += 1
            print(f"world {seed}: {outcome}\n  repeat it: python tests/worlds/worlds.py --trace {seed}", flush=True)
        else:
            steps += outcome.steps
            events += sum(query.events for query in outcome.queries)
    took_s = time.monotonic() - begun_s
    print(f"{len(seeds)} worlds, {steps} steps, {events} events in {took_s:.0f} s; {broken} broke a promise")
    return broken


def show(seed: int) -> int:
    """Print all that happened in a world; return 1 if it broke a promise."""
    world, outcome = live(seed, keep_trace=True)
    sys.stdout.writelines(world.trace.lines)
    print(outcome)
    return int(isinstance(outcome, str))


def main(arguments: list[str]) -> int:
    """Do what the arguments say."""
    if arguments[:1] == ["--trace"]:
        return show(int(arguments[1]))
    count = int(arguments[0]) if arguments else 1000
    first = int(arguments[1]) if len(arguments) > 1 else 1
    return int(live_through(range(first, first + count)) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
