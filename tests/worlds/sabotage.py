"""Mistakes put into the core, one at a time, and which check finds each.

python tests/worlds/sabotage.py --table [FILE]         every mistake against every check; writes the table (FILE)
python tests/worlds/sabotage.py --cheapest [NAME]      each mistake (with NAME in its name) against the check known
                                                       to find it at the least cost; prints a line of JSON each

Each mistake is tried in a separate forked process into which no module of ours was loaded before: the module's source
is changed as it is imported. If the text of a mistake is no longer there, an error is raised.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

from tests.worlds.mistakes import MISTAKES, Mistake

ROOT = Path(__file__).parents[2]
WORLDS_MOST = 60
MOVING_MOST = 60
DIVIDED_MOST = 150
LIVES_MOST = 150
MACHINES_MOST = 60
PERIODS_MOST = 60
# A check that a mistake makes endless ends after so many CPU seconds, and has not found it.
CPU_MOST_S = 600


@dataclass(frozen=True, slots=True)
class Finding:
    """Which check found a mistake, after how many worlds, lives or examples, at what cost, and with which message."""

    mistake: str
    check: str
    found: bool
    after: int
    cpu_s: float
    said: str


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module with a changed source, and leaves all others to the usual finders."""

    def __init__(self, mistake: Mistake) -> None:
        self._mistake = mistake

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mistake.module:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=str(self._mistake.path(ROOT)))

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._mistake.applied(ROOT), str(module.__spec__), "exec"), module.__dict__)  # ours


# -------------------------------------------------------------------------------------------------------------- checks


def _worlds(most: int, first: int = 1) -> tuple[int, str]:
    from tests.worlds.worlds import live

    for seed in range(first, first + most):
        outcome = live(seed)[1]
        if isinstance(outcome, str):
            return seed, outcome
    return most, ""


def _moving(most: int, first: int = 1) -> tuple[int, str]:
    """Simulate worlds in which a query moves with its state."""
    from tests.worlds.drawing import MOVING_REST, MOVING_WORLDS
    from tests.worlds.worlds import live

    begin = first + (MOVING_REST - first) % MOVING_WORLDS
    for seed in range(begin, begin + MOVING_WORLDS * most, MOVING_WORLDS):
        outcome = live(seed)[1]
        if isinstance(outcome, str):
            return seed, outcome
    return most, ""


def _divided(most: int, first: int = 1) -> tuple[int, str]:
    """Simulate short worlds of a query whose parts move."""
    from tests.worlds.divided_worlds import live_divided

    for seed in range(first, first + most):
        outcome = live_divided(seed)[1]
        if isinstance(outcome, str):
            return seed, outcome
    return most, ""


def _lives(most: int, first: int = 1) -> tuple[int, str]:
    """Run lives of the exchange, as its property test does, from seeds that stay the same."""
    from tests.core.exchange.exchange_lives import Life

    for seed in range(first, first + most):
        try:
            life = Life(seed)
            life.live(random.Random(seed).randint(0, 250))  # no secret
            life.end()
        except Exception as error:
            return seed, _said(error)
    return most, ""


def _periods(most: int, first: int = 1) -> tuple[int, str]:
    """Run lives of a scheduler with a simple fleet, as their test does."""
    from tests.worlds.vm_periods import Life

    for seed in range(first, first + most):
        try:
            Life(seed).live()
        except Exception as error:
            return seed, _said(error)
    return most, ""


def _scheduler(most: int, first: int = 1) -> tuple[int, str]:  # Hypothesis has no first example
    """Run the scheduler's property test, always with the same examples."""
    from hypothesis import Phase, settings
    from hypothesis.stateful import run_state_machine_as_test

    from tests.policies.scheduler_world import World

    tried = 0

    class Counted(World):
        def __init__(self) -> None:
            nonlocal tried
            tried += 1
            super().__init__()

    quick = settings(
        max_examples=most, deadline=None, derandomize=True, database=None, phases=[Phase.generate], print_blob=False
    )
    try:
        run_state_machine_as_test(Counted, settings=quick)
    except Exception as error:
        return tried, _said(error)
    return tried, ""


def _unit_tests(most: int, first: int = 1) -> tuple[int, str]:  # all or none
    """Run the example tests of the exchange."""
    import pytest

    class Seen:
        passed = 0
        failed = ""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            self.passed += report.when == "call" and report.passed
            if report.failed and not self.failed:
                self.failed = f"{report.nodeid.rpartition('::')[2]} failed"

    seen = Seen()
    tests = [
        str(path) for path in sorted((ROOT / "tests/core/exchange").glob("test_*.py")) if "machine" not in str(path)
    ]
    tests = [path for path in tests if "stands_alone" not in path]
    options = [
        "-x",
        "-q",
        "--noconftest",
        "-p",
        "no:cacheprovider",
        "--no-header",
        "--show-capture=no",
        "--tb=no",
        "--assert=plain",
    ]
    with Path(os.devnull).open("w") as nowhere:
        sys.stdout = nowhere
        pytest.main([*options, *tests], plugins=[seen])
        sys.stdout = sys.__stdout__
    return seen.passed + 1, seen.failed


CHECKS: dict[str, tuple[Callable[..., tuple[int, str]], int, str]] = {
    "worlds": (_worlds, WORLDS_MOST, "worlds"),
    "moving": (_moving, MOVING_MOST, "worlds in which a query moves"),
    "divided": (_divided, DIVIDED_MOST, "short worlds of a query whose parts move"),
    "lives": (_lives, LIVES_MOST, "lives of an exchange"),
    "scheduler": (_scheduler, MACHINES_MOST, "examples of the scheduler"),
    "periods": (_periods, PERIODS_MOST, "lives of a scheduler with a simple fleet"),
    "tests": (_unit_tests, 1, "example tests of the exchange"),
}


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:200]


# ------------------------------------------------------------------------------------------------------------- running


def _prepare() -> None:
    """Load heavy third-party modules once, before any process is forked."""
    sys.path.insert(0, str(ROOT))
    for name in (
        "numpy",
        "scipy.special",
        "scipy.linalg",
        "scipy.stats",
        "scipy.optimize",
        "pyarrow",
        "hypothesis.stateful",
        "pytest",
    ):
        importlib.import_module(name)
    ours = [name for name in sys.modules if name.partition(".")[0] in {"gateway", "policies", "engines", "infra"}]
    assert not ours, f"{ours} are loaded already"


def _try(mistake: Mistake | None, check: str, most: int, first: int) -> Finding:
    """Run one check against a mistake (None: against the code as it is), in this process."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_MOST_S, CPU_MOST_S + 5))
    begun_s = time.process_time()
    if mistake is not None:
        mistake.applied(ROOT)
        sys.meta_path.insert(0, _Mutated(mistake))
    try:
        after, said = CHECKS[check][0](most, first)
    except Exception as error:
        after, said = 0, _said(error)
    if mistake is not None and mistake.module not in sys.modules:
        raise RuntimeError(f"{check} does not load {mistake.module}: it cannot find {mistake.name!r}")
    name = "none" if mistake is None else mistake.name
    return Finding(name, check, bool(said), after, time.process_time() - begun_s, said)


def tried(mistake: Mistake | None, check: str, *, most: int | None = None, first: int = 1) -> Finding:
    """Run a check against a mistake in a separate forked process."""
    return _forked(mistake, check, CHECKS[check][1] if most is None else most, (first,))[0]


def _forked(mistake: Mistake | None, check: str, most: int, firsts: Sequence[int]) -> list[Finding]:
    """Run a check from each of these first worlds, all in one forked process."""
    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def child() -> None:
        theirs.send([_try(mistake, check, most, first) for first in firsts])

    process = context.Process(target=child)
    process.start()
    theirs.close()
    try:
        return ours.recv()  # type: ignore[no-any-return]  # what the child sent
    except EOFError:
        name = "none" if mistake is None else mistake.name
        said = f"ended without an answer: {process.exitcode}"
        return [Finding(name, check, False, 0, CPU_MOST_S, said) for _ in firsts]
    finally:
        process.join()


def cheapest(named: str = "") -> None:
    """Print, as JSON, the result of the known check for each mistake, and for the code as it is."""
    mistakes = [mistake for mistake in MISTAKES if named in mistake.name]
    for mistake in mistakes:
        # The check ends where it finds something; the scheduler's examples have no first one to begin with.
        most = CHECKS[mistake.check][1] if mistake.check == "scheduler" else 1
        print(json.dumps(asdict(tried(mistake, mistake.check, most=most, first=mistake.after))), flush=True)
    # The code as it is can be loaded once for all worlds of a check.
    for check in ("worlds", "moving", "divided", "lives", "periods"):
        firsts = sorted({mistake.after for mistake in mistakes if mistake.check == check})
        for first, found in zip(firsts, _forked(None, check, 1, firsts), strict=True):
            print(json.dumps(asdict(found) | {"mistake": f"none, {check} {first}"}), flush=True)


def table(path: Path) -> int:
    """Try every mistake with every check that loads its module; write the table; return how many no check found."""
    rows = []
    for mistake in MISTAKES:
        found = [tried(mistake, check) for check in mistake.checks]
        if not any(each.found for each in found) and "lives" in mistake.checks:
            found.append(tried(mistake, "tests"))
        for each in found:
            print(json.dumps(asdict(each)), flush=True)
        rows.append((mistake, found))
    path.write_text(_document(rows), encoding="utf-8")
    return sum(not any(each.found for each in found) for _, found in rows)


def _document(rows: list[tuple[Mistake, list[Finding]]]) -> str:
    by_worlds = sum(
        any(each.found and each.check in {"worlds", "moving", "divided"} for each in found) for _, found in rows
    )
    by_any = sum(any(each.found for each in found) for _, found in rows)
    head = f"{by_any} of {len(rows)} mistakes are found, {by_worlds} of them by simulated worlds."
    lines = [
        "# Which known mistakes the checks find",
        "",
        f"Each mistake is put into the code alone, and then the checks run: {head}",
        "`make sabotage` writes this table. `tests/worlds/test_sabotage.py` runs the cheapest check that finds",
        "each mistake in every test run. `tests/worlds/mistakes.py` lists the mistakes.",
        "",
        f"- `worlds`: `make worlds`, up to {WORLDS_MOST:,} worlds;",
        f"- `moving`: worlds in which a query moves with its state (each tenth), up to {MOVING_MOST};",
        f"- `divided`: short worlds of a query whose parts move (`divided_worlds.py`), up to {DIVIDED_MOST};",
        f"- `lives`: random lives of an exchange (`exchange_lives.py`), up to {LIVES_MOST};",
        f"- `scheduler`: examples of `scheduler_world.py`, up to {MACHINES_MOST};",
        f"- `periods`: lives of a scheduler with a simple fleet (`vm_periods.py`), up to {PERIODS_MOST};",
        "- `tests`: the example tests of the exchange, if the others find nothing; the number is that of the test.",
        "",
        "The check that needs the least CPU time is bold. The columns after it show the figures of that check.",
        "",
        "| mistake | in | found by, after how many | CPU s | its message |",
        "| --- | --- | --- | ---: | --- |",
    ]
    return "\n".join([*lines, *(_row(*row) for row in rows), ""])


def _row(mistake: Mistake, found: list[Finding]) -> str:
    best = min((each for each in found if each.found), key=lambda each: each.cpu_s, default=None)
    words = []
    for each in found:
        text = f"{each.check} {each.after:,}" if each.found else f"not by {each.check}"
        words.append(f"**{text}**" if each is best else text)
    said = "" if best is None else best.said.replace("|", "/")[:110]
    cpu = "" if best is None else f"{best.cpu_s:.1f}"
    return f"| {mistake.name} | `{mistake.module.rpartition('.')[2]}` | {', '.join(words)} | {cpu} | {said} |"


def main(arguments: list[str]) -> int:
    """Run the command that the arguments name."""
    _prepare()
    if arguments[:1] == ["--cheapest"]:
        cheapest(*arguments[1:2])
        return 0
    path = Path(arguments[1]) if len(arguments) > 1 else ROOT / "docs/results/sabotage.md"
    return int(table(path) > 0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
