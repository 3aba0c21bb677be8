import pytest

from engines.worker import end_machine
from gateway.config.fields import LATER
from infra.clouds.endings import ENDINGS


def test_every_provider_of_the_config_has_an_ending() -> None:
    assert {"process", "ec2", "gce", "openstack"} <= ENDINGS.keys() >= set(LATER.get("provider", ()))


def test_a_machine_either_stops_costing_or_it_is_said_what_still_costs() -> None:
    for provider, ending in ENDINGS.items():
        assert bool(ending.command) == (provider != "process")
        assert not (ending.needs and ending.still_costs)
    assert ENDINGS["ec2"].needs == "InstanceInitiatedShutdownBehavior=terminate"
    assert "shut down" in ENDINGS["openstack"].still_costs


def test_a_command_that_is_not_there_is_said(caplog: pytest.LogCaptureFixture) -> None:
    end_machine(("no-such-command-anywhere", "now"))
    assert "cannot be ended (no-such-command-anywhere: No such file or directory)" in caplog.text
