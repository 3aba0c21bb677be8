"""Writes the tables of docs/results/state.md: how keys are divided among lanes, and real queries against oracles.

``python bench/reproduce_state.py --data FOLDER`` uses the real data from a folder with ``debs2016``, ``dublin_bus`` and
``austin_bus``; without it only generated input is used. ``--only`` chooses sections. Tables are printed and written
into the document. Seeds are fixed. ``--write FOLDER`` runs nothing, and writes the queries' input there as JSON lines.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from planning.document import put

DOCUMENT = Path(__file__).parents[1] / "docs" / "results" / "state.md"
SECTIONS = ("balancing", "workloads", "moving", "together", "pauses", "hotkey", "corpus")


def main() -> None:
    """Run the chosen sections."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the real data; default: generated input only")
    parser.add_argument("--only", nargs="*", choices=SECTIONS, help="sections to run; default: all")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write posts.jsonl and buses.jsonl, and end")
    chosen = parser.parse_args()
    if chosen.write:
        import_module("state.workloads").write(chosen.data, chosen.write)
        return
    for section in chosen.only or SECTIONS:
        report = import_module(f"state.{section}").report
        text = report(chosen.data) if section in ("workloads", "moving") else report()
        print(f"\n## {section}\n\n{text}", flush=True)
        put(DOCUMENT, section, text)


if __name__ == "__main__":
    main()
