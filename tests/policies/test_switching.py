import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.switching.switching import SwitchingSettings, phi_data, phi_vm
from tests.policies.policy_data import SWITCHING


@pytest.mark.parametrize(
    ("before", "latency_s", "high_for_s", "period_bytes", "period_ends", "after"),
    [
        # first branch: L >= L_s and tau has elapsed
        (False, 3.0, 1.0, 0, False, True),
        (True, 3.0, 1.0, 0, True, True),
        (False, 3.0, 0.9, 0, False, False),
        (False, 2.9, 9.0, 0, False, False),
        # second branch: D < D_s and L < L_p, only when the period ends
        (True, 0.9, 0.0, 999, True, False),
        (True, 0.9, 0.0, 999, False, True),
        (True, 1.0, 0.0, 999, True, True),
        (True, 0.9, 0.0, 1000, True, True),
        # between the branches the last value holds
        (True, 2.0, 0.0, 0, True, True),
        (False, 2.0, 0.0, 5000, True, False),
        (True, 3.5, 0.0, 0, True, True),
    ],
)
def test_equation_1(
    before: bool, latency_s: float, high_for_s: float, period_bytes: int, period_ends: bool, after: bool
) -> None:
    value = phi_vm(
        SWITCHING,
        before=before,
        latency_s=latency_s,
        high_for_s=high_for_s,
        period_bytes=period_bytes,
        period_ends=period_ends,
    )
    assert value is after


@pytest.mark.parametrize(
    ("vm_before", "vm_ready", "latency_s", "value"),
    [
        (True, True, 2.0, True),
        (True, True, 1.99, False),
        (True, False, 2.0, False),
        (False, True, 2.0, False),
        (False, False, 9.0, False),
    ],
)
def test_equation_2(vm_before: bool, vm_ready: bool, latency_s: float, value: bool) -> None:
    assert phi_data(SWITCHING, vm_before=vm_before, vm_ready=vm_ready, latency_s=latency_s) is value


@given(st.lists(st.floats(0, 2.99), max_size=30), st.booleans())
def test_below_the_start_threshold_a_vm_is_never_started_and_only_stopped_at_a_period_end(
    latencies_s: list[float], before: bool
) -> None:
    value = before
    for latency_s in latencies_s:
        value = phi_vm(SWITCHING, before=value, latency_s=latency_s, high_for_s=99.0, period_bytes=0, period_ends=False)
        assert value is before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"send_above_s": 3.0}, "L_s > L_d"),
        ({"send_above_s": 4.0}, "L_s > L_d"),
        ({"keep_vm_above_s": 3.1}, "launched again at once"),
        ({"tolerance_s": -1.0}, "negative"),
        ({"keep_vm_bytes": -1}, "negative"),
    ],
)
def test_contradictory_thresholds_are_refused(changes: dict[str, float], message: str) -> None:
    good: dict[str, float] = {
        "start_vm_above_s": 3.0,
        "send_above_s": 2.0,
        "keep_vm_above_s": 1.0,
        "keep_vm_bytes": 0,
        "tolerance_s": 1.0,
    }
    with pytest.raises(ValueError, match=message):
        SwitchingSettings(**{**good, **changes})  # type: ignore[arg-type]
