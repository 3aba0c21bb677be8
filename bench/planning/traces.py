"""The traces: three real ones from a folder, or generated ones of the same kinds."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from policies.arrays import Array
from policies.gaussian.features import DAY_S

SEED = 7
POINTS = 2000
TRAINING_POINTS = 1400
STEPS_AHEAD = 3
WEEK_S = 7 * DAY_S
PERIODS_S = (DAY_S, WEEK_S)


@dataclass(frozen=True, slots=True)
class Trace:
    """Events per bin, shape (n,), with the start of each bin in seconds of local time."""

    name: str
    at_s: Array
    values: Array

    @property
    def bin_s(self) -> float:
        """Length of a bin."""
        return float(self.at_s[1] - self.at_s[0])


def load(folder: Path | None) -> list[Trace]:
    """Return the three traces of a folder, or generated ones if there is none.

    Raises:
        FileNotFoundError: a trace is missing in the folder.
    """
    if folder is None:
        return [generated(name, bin_s) for name, bin_s in (("steady", 1800.0), ("noisy", 1200.0), ("growing", 3600.0))]
    loaders: tuple[Callable[[Path], Trace], ...] = (_world_cup, _nasa, _taxi)
    return [loader(folder) for loader in loaders]


def load_all(folder: Path | None) -> list[Trace]:
    """Return the traces of ``load``, and the volumes of messages about two companies.

    Raises:
        FileNotFoundError: a trace is missing in the folder.
    """
    more = [] if folder is None else [_messages(folder, company) for company in ("AAPL", "AMZN")]
    return [*load(folder), *more]


def generated(kind: str, bin_s: float, seed: int = SEED) -> Trace:
    """Return a trace with days and weeks: steady, noisy, or growing with bursts."""
    rng = np.random.default_rng(seed)
    at_s = 1_704_067_200.0 + bin_s * np.arange(POINTS)
    day, weekend = at_s / DAY_S % 1.0, (at_s // DAY_S + 3) % 7 >= 5
    rate = 1000 * (1.2 - np.cos(2 * np.pi * day) - 0.3 * np.cos(4 * np.pi * (day - 0.1))) * np.where(weekend, 0.7, 1.0)
    if kind == "noisy":
        rate *= np.exp(0.25 * rng.normal(size=POINTS))
    if kind == "growing":
        rate *= np.exp(2.0 * np.arange(POINTS) / POINTS)
        for burst in rng.integers(0, POINTS, 40):
            rate[burst : burst + 3] *= 3.0
    return Trace(f"generated, {kind}", at_s, rng.poisson(rate).astype(np.float64))


def _seconds(text: str) -> float:
    """Read a trace's local time as if it were UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _binned(name: str, start_s: float, values: Array, bin_s: float, per_bin: int) -> Trace:
    """Add up equally long samples to bins."""
    bins = min(len(values) // per_bin, POINTS)
    sums = values[: bins * per_bin].reshape(bins, per_bin).sum(axis=1)
    return Trace(name, start_s + bin_s * np.arange(bins), sums)


def _taxi(folder: Path) -> Trace:
    """New York taxi passengers, half hours."""
    lines = (folder / "nyc_taxi.csv").read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines[:POINTS]]
    return Trace("NYC taxi", np.array([_seconds(r[0]) for r in rows]), np.array([float(r[1]) for r in rows]))


def _nasa(folder: Path) -> Trace:
    """Requests to NASA's web server in July 1995, 20 minutes each; the months after it are shifted in time."""
    with gzip.open(folder / "nasa_http_per_second.txt.gz", "rt") as file:
        values = np.array(file.read(5_000_000).split()[:2_380_000], dtype=np.float64)
    return _binned("NASA", _seconds("1995-07-01T00:00:01"), values, 1200.0, 1200)


def _messages(folder: Path, company: str) -> Trace:
    """Messages on Twitter about a company in 2015, half hours."""
    with gzip.open(folder / f"Twitter_volume_{company}.csv.gz", "rt") as file:
        rows = [line.rstrip().split(",") for line in file.read().splitlines()[1:]]
    values = np.array([float(row[1]) for row in rows])
    return _binned(f"Twitter {company}", _seconds(rows[0][0]), values, 1800.0, 6)


def _world_cup(folder: Path) -> Trace:
    """Requests to the World Cup's site in 1998, hours."""
    with gzip.open(folder / "worldcup98_per_minute.csv.gz", "rt") as file:
        rows = [line.rstrip().split(",") for line in file.read().splitlines()[1:]]
    minutes = np.array([_seconds(row[0]) for row in rows]) / 60
    values = np.zeros(int(minutes[-1] - minutes[0]) + 1)
    values[(minutes - minutes[0]).astype(int)] = [float(row[1]) for row in rows]
    return _binned("WorldCup98", float(minutes[0]) * 60, values, 3600.0, 60)
