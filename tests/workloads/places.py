"""Where the shared data are, if this machine has them."""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(os.environ.get("SPILLWAY_DATA", Path(__file__).parents[3] / "shared" / "data"))
CHALLENGE = DATA / "debs2016"
DUBLIN = DATA / "dublin_bus" / "siri.20130131.csv.gz"
AUSTIN = DATA / "austin_bus" / "vehicle_positions_2016-03-22.csv.gz"
TWEETS = DATA / "tweets"
TICKS = DATA / "ticks"
