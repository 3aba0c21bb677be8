"""Writes the page of all keys of the config: ``python -m gateway.config.reference.write docs/config.md``."""

from __future__ import annotations

import sys
from pathlib import Path

from gateway.config.reference.page import page

Path(sys.argv[1]).write_text(page(), encoding="utf-8")
