"""Writes the tables of docs/results/patterns.md: selections and patterns, with the paper's figures beside ours.

``python bench/reproduce_patterns.py --data FOLDER`` uses the real data from a folder; without it, what needs real data
uses generated input. ``--only`` chooses sections. Tables are printed and written into the document. Seeds are fixed.
The section ``ticks`` needs Maven and a JDK.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from planning.document import put

DOCUMENT = Path(__file__).parents[1] / "docs" / "results" / "patterns.md"
SECTIONS = ("splitter", "overtaking", "eventcache", "stories", "degree", "reallanes", "horizon", "ticks")


def main() -> None:
    """Run the chosen sections."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the real data; default: generated input only")
    parser.add_argument("--only", nargs="*", choices=SECTIONS, help="sections to run; default: all")
    chosen = parser.parse_args()
    for section in chosen.only or SECTIONS:
        text = import_module(f"patterns.{section}").report(chosen.data)
        print(f"\n## {section}\n\n{text}", flush=True)
        put(DOCUMENT, section, text)


if __name__ == "__main__":
    main()
