"""The policy settings of the config reach the scheduler, with defaults that fit the cloud."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config import Config, ConfigError, load
from gateway.config.settings import scheduler_settings
from policies.auto.policy import AutoOptions
from policies.choose import choice, make_policy
from policies.lookahead.policy import LookaheadOptions
from policies.planning.plain import CpuOptions, StaticOptions
from policies.planning.planner import PlannerOptions
from policies.planning.queueing import QueueingOptions

Write = Callable[..., Path]
QOS = "qos: {latency: 2s}"
ALL_SAID = (
    "{type: planner, window: 10s, horizon: 5m, history: 100, cycles: [1h, 24h], miss_usd: 0.01, change_usd: 0, "
    "most_uncertainty: 50%, most_error: 10%}"
)


def with_policy(write: Write, text: str, *changes: tuple[str, str]) -> Config:
    return load(write((QOS, f"{QOS}\n    policy: {text}"), *changes), {})


def options(config: Config) -> object:
    settings = scheduler_settings(config)
    assert settings.queries[1].policy is None
    return settings.queries[0].policy


def test_nothing_said_is_reactive(write: Write) -> None:
    settings = scheduler_settings(load(write(), {}))
    assert [query.policy for query in settings.queries] == [None, None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{type: reactive}", None),
        ("{type: planner}", PlannerOptions(window_s=5.0, windows=14)),
        (
            ALL_SAID,
            PlannerOptions(
                window_s=10.0,
                windows=30,
                history=100,
                cycles_s=(3600.0, 86_400.0),
                miss_usd=0.01,
                change_usd=0.0,
                most_uncertainty=0.5,
                most_error=0.1,
            ),
        ),
        ("{type: queueing}", QueueingOptions(window_s=5.0)),
        (
            "{type: queueing, buffer_limit: 15, probability: 99%, ahead: 30s, window: 2s, forecast: gp, cycle: 1h}",
            QueueingOptions(
                window_s=2.0, buffer_limit=15, probability=0.99, ahead_s=30.0, forecast="gp", cycle_s=3600.0
            ),
        ),
        ("{type: cpu}", CpuOptions(start_above=0.7, stop_below=0.5, window_s=5.0)),
        ("{type: static, vms: 2}", StaticOptions(2)),
        ("{type: lookahead}", LookaheadOptions()),
    ],
)
def test_what_is_said_reaches_the_scheduler(write: Write, text: str, expected: object) -> None:
    assert options(with_policy(write, text)) == expected


@pytest.mark.parametrize(
    ("boot", "period", "window_s"),
    [("10s", "60s", 5.0), ("60s", "60s", 30.0), ("60s", "1h", 300.0), ("0s", "5s", 1.0), ("25s", "1s", 13.0)],
)
def test_a_window_is_half_a_boot_or_a_twelfth_of_a_block(write: Write, boot: str, period: str, window_s: float) -> None:
    config = with_policy(
        write,
        "{type: planner}",
        ("boot: 10s", f"boot: {boot}"),
        ("period: 60s, minimum: 60s", f"period: {period}, minimum: 1s"),
    )
    chosen = options(config)
    assert isinstance(chosen, PlannerOptions)
    assert chosen.window_s == window_s
    assert 2 <= chosen.windows <= 120


def test_a_query_that_stays_home_needs_no_policy(write: Write) -> None:
    with pytest.raises(ConfigError, match="nothing to decide, as switching"):
        load(write((QOS, f"{QOS}\n    switching: {{mode: off}}\n    policy: {{type: cpu}}")), {})


def test_auto_compares_the_defaults_of_its_rules(write: Write) -> None:
    (chosen, _) = scheduler_settings(with_policy(write, "{type: auto, miss_usd: 0.01}")).queries
    assert isinstance(chosen.policy, AutoOptions)
    assert chosen.policy.planner == options(with_policy(write, "{type: planner, miss_usd: 0.01}"))
    assert chosen.policy.queueing == options(with_policy(write, "{type: queueing}"))
    assert chosen.policy.cpu == options(with_policy(write, "{type: cpu}"))
    assert chosen.policy.switching == chosen.switching


def test_every_policy_has_its_name(write: Write) -> None:
    texts = ["reactive", "lookahead", "auto", "planner", "queueing", "cpu", "static, vms: 1"]
    from policies.advice import Site

    settings = scheduler_settings(load(write(), {}))
    site = Site(max_vms=2, terms=settings.billing, boot_s=10.0, slot_s=1.0)
    for text in texts:
        (chosen, _) = scheduler_settings(with_policy(write, f"{{type: {text}}}")).queries
        assert make_policy(choice(chosen), site).name == text.split(",")[0]


def test_the_schema_knows_every_policy() -> None:
    schema = Config.model_json_schema()
    mapping = schema["$defs"]["QueryConfig"]["properties"]["policy"]["discriminator"]["mapping"]
    assert set(mapping) == {"reactive", "lookahead", "auto", "planner", "queueing", "cpu", "static"}
    assert set(schema["$defs"]["PlannerPolicyConfig"]["properties"]) >= {"horizon", "window", "miss_usd", "change_usd"}
