"""What `spillway why` says of equations 1 and 2 is what the scheduler does, with the numbers of the slot."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from policies.signals import VmReady
from tests.policies.policy_data import ALL_HOME, Checked, idle


def told(checked: Checked) -> tuple[str, ...]:
    (decision,) = checked.scheduler.last_decisions
    return decision.equations


def test_below_the_thresholds_nothing_is_launched_or_sent() -> None:
    checked = Checked()
    checked.slot(0.25)
    assert told(checked) == (
        "Equation 1, launch: no, since L 0.25 s < start_vm_above (L_s) 3 s",
        "Equation 2, send events: no: no VM is ready, and L 0.25 s < send_above (L_d) 2 s",
    )


def test_while_tau_runs_it_says_how_long_the_latency_was_high() -> None:
    checked = Checked()
    checked.slot(3.5)
    launch, _ = told(checked)
    assert launch == (
        "Equation 1, launch: not yet: L 3.50 s >= start_vm_above (L_s) 3 s, "
        "held for 0.0 s of the tolerance (tau) of 1 s"
    )
    assert checked.slot(3.5) == [("start", "vm-1")]
    launch, _ = told(checked)
    assert launch == "Equation 1, launch: L 3.50 s >= start_vm_above (L_s) 3 s; vm-1 is launched"


def test_the_bytes_of_a_period_are_told_before_the_next_one_begins() -> None:
    checked = idle()
    while checked.now_s < 119.0:
        checked.slot(2.5, raw_bytes={"vm-1": 100})
    assert checked.slot(0.5, raw_bytes={"vm-1": 100}) == [ALL_HOME]
    _, keep, send = told(checked)
    assert keep == (
        "Equation 1, keep vm-1 when its billing period ends in 2 s: yes: L 0.50 s < keep_vm_above (L_p) 1 s, "
        "and D 1,800 bytes >= keep_vm_bytes (D_s) 1,000"
    )
    assert send == "Equation 2, send events: no: a VM is ready, and L 0.50 s < send_above (L_d) 2 s"


@given(st.lists(st.tuples(st.floats(0, 6), st.integers(0, 200)), max_size=60))
def test_what_is_told_is_what_is_done(slots: Sequence[tuple[float, int]]) -> None:
    checked = Checked()
    for latency_s, sent_bytes in slots:
        ready = [vm for vm, state in checked.scheduler.vms.items() if str(state) in ("idle", "sending")]
        done = checked.slot(latency_s, raw_bytes=dict.fromkeys(ready, sent_bytes))
        launch, *keeps, send = told(checked)
        started = [command[1] for command in done if command[0] == "start"]
        assert all(launch.endswith(f"{vm} is launched") for vm in started)
        ended = [command[1] for command in done if command[0] in ("drain", "terminate")]
        assert all(": no: " in keep for keep in keeps for vm in ended if f"keep {vm} " in keep)
        sends = [command for command in done if command[0] == "route" and command != ALL_HOME]
        assert not sends or "send events: yes" in send
        for vm in started:
            checked.tell(VmReady, vm=vm, billing_since_s=checked.now_s)
