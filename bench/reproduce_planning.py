"""Writes the tables of docs/results/planning.md: forecasts, costs, engines over time, planning time, limits, bursts.

``python bench/reproduce_planning.py --data FOLDER`` uses the real traces from a folder with ``nyc_taxi.csv``,
``nasa_http_per_second.txt.gz``, ``worldcup98_per_minute.csv.gz`` and, for ``auto``, ``Twitter_volume_AAPL.csv.gz`` and
``Twitter_volume_AMZN.csv.gz``; without it generated ones are used. ``--only`` chooses sections. Tables are printed and
written into the document. Seeds are fixed. Times are CPU time, so that other load matters less; set OMP_NUM_THREADS=1.
``harm on spark`` is in real time, on real Spark: some 22 minutes, with nothing else on the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from planning.document import put
from planning.traces import Trace, load, load_all

DOCUMENT = Path(__file__).parents[1] / "docs" / "results" / "planning.md"
SECTIONS = {
    "forecasts": ("forecasting", "report"),
    "fit times": ("forecasting", "fit_times"),
    "cost shapes": ("costshapes", "report"),
    "engines over time": ("elasticity", "report"),
    "foresight": ("foresight", "report"),
    "planning time": ("timing", "report"),
    "event loop": ("holding", "report"),
    "approximations": ("buffers", "approximations"),
    "sudden": ("sudden", "report"),
    "announced": ("announced", "report"),
    "auto": ("auto", "report"),
    "auto on bursts": ("autobursts", "report"),
    "harm": ("harm", "report"),
    "harm on spark": ("harmonspark", "report"),
}
"""Module and function of each section; imported when they are run, since some take long to import."""

OF_TRACES = ("forecasts", "fit times", "engines over time", "foresight", "announced")
"""Sections that are about three traces."""
OF_ALL_TRACES = ("auto",)
"""Sections that are about all traces."""


def measure(section: str, traces: Sequence[Trace]) -> str:
    """Run a section and return its table."""
    module, function = SECTIONS[section]
    run: Callable[..., str] = getattr(import_module(f"planning.{module}"), function)
    return run(traces) if section in (*OF_TRACES, *OF_ALL_TRACES) else run()


def main() -> None:
    """Run the chosen sections."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the real traces; default: generated traces")
    parser.add_argument("--only", nargs="*", help="sections to run; default: all")
    chosen = parser.parse_args()
    names = chosen.only or list(SECTIONS)
    if unknown := set(names) - set(SECTIONS):
        parser.error(f"there is no section {', '.join(unknown)}: choose from {', '.join(SECTIONS)}")
    traces = load(chosen.data) if set(names) & set(OF_TRACES) else []
    all_traces = load_all(chosen.data) if set(names) & set(OF_ALL_TRACES) else []
    for name in names:
        text = measure(name, all_traces if name in OF_ALL_TRACES else traces)
        source = "the real traces" if chosen.data else "generated traces"
        noted = f"{text}\n\n*Measured with {source}.*" if name in (*OF_TRACES, *OF_ALL_TRACES) else text
        print(f"\n## {name}\n\n{noted}", flush=True)
        put(DOCUMENT, name, noted)


if __name__ == "__main__":
    main()
