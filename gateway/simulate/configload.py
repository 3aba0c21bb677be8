"""The load that a config describes itself: how fast it replays files."""

from __future__ import annotations

from engines.simulated.generators import ConstantRate, Generator, RateSteps
from gateway.config import Config
from gateway.config.connectors.sources import FileSourceConfig, QuerySourceConfig, ReplayConfig


def configured_load(config: Config, query: str) -> Generator | None:
    """Return the events of a query, at the rate or the profile of its replay; None if the config does not tell."""
    replay = _replay(config, query)
    if replay is None:
        return None
    if replay.rate_per_s is not None:
        return ConstantRate(replay.rate_per_s * replay.speed)
    if replay.profile is not None:
        return RateSteps(
            tuple(step.for_s / replay.speed for step in replay.profile),
            tuple(step.rate_per_s * replay.speed for step in replay.profile),
        )
    return None


def configured_s(config: Config) -> float | None:
    """Return how long the longest profile of a replay lasts; None if there is none."""
    replays = [_replay(config, query) for query in config.queries]
    profiles = [
        sum(step.for_s for step in replay.profile) / replay.speed
        for replay in replays
        if replay is not None and replay.profile is not None
    ]
    return max(profiles, default=None)


def _replay(config: Config, query: str) -> ReplayConfig | None:
    match config.queries[query].source:
        case FileSourceConfig(replay=replay):
            return replay
        case QuerySourceConfig(name=upstream):
            return _replay(config, upstream)
        case _:
            return None
