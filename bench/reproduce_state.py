"""Writes the tables of docs/results/state.md: how the keys of a query are divided among lanes.

``python bench/reproduce_state.py`` prints the tables and writes them into the document. The seed is fixed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from planning.document import put
from state.balancing import report

DOCUMENT = Path(__file__).parents[1] / "docs" / "results" / "state.md"


def main() -> None:
    """Run all sections."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    text = report()
    print(text)
    put(DOCUMENT, "balancing", text)


if __name__ == "__main__":
    main()
