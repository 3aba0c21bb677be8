"""The two binary switching functions of ESM (Ravindra et al., ICPE 2017, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SwitchingSettings:
    """Thresholds of one query, named as in the configuration, with the paper's symbols.

    Attributes:
        start_vm_above_s: L_s, latency from which a VM is wanted.
        send_above_s: L_d, latency from which events go to a ready VM.
        keep_vm_above_s: L_p, latency from which a VM is kept for another billing period.
        keep_vm_bytes: D_s, raw bytes sent in a billing period from which a VM is kept for another.
        tolerance_s: tau, how long L >= L_s must hold before a VM is started.

    Raises:
        ValueError: a threshold is negative, L_s <= L_d, or L_p > L_s.
    """

    start_vm_above_s: float
    send_above_s: float
    keep_vm_above_s: float
    keep_vm_bytes: int
    tolerance_s: float

    def __post_init__(self) -> None:
        lowest = min(self.send_above_s, self.keep_vm_above_s, self.keep_vm_bytes, self.tolerance_s)
        if lowest < 0:
            raise ValueError(f"thresholds must not be negative: {self}")
        if not self.start_vm_above_s > self.send_above_s:
            raise ValueError(
                f"start_vm_above ({self.start_vm_above_s:g} s) must be greater than send_above "
                f"({self.send_above_s:g} s): starting a VM costs more than using one (L_s > L_d)"
            )
        if self.keep_vm_above_s > self.start_vm_above_s:
            raise ValueError(
                f"keep_vm_above ({self.keep_vm_above_s:g} s) must not be greater than start_vm_above "
                f"({self.start_vm_above_s:g} s): a VM terminated at this latency would be launched again at once"
            )


def phi_vm(
    settings: SwitchingSettings,
    *,
    before: bool,
    latency_s: float,
    high_for_s: float,
    period_bytes: int,
    period_ends: bool,
) -> bool:
    """Equation 1: whether a VM should run in the next slot.

    Between the two branches the last value holds; the second branch is evaluated only when a billing period ends.

    Args:
        settings: the query's thresholds.
        before: phi_VM of the slot before.
        latency_s: L_{t-1}.
        high_for_s: how long L >= L_s has held without a break.
        period_bytes: D, raw bytes sent to the VM in the billing period that ends.
        period_ends: whether the keep-or-stop decision is due.
    """
    if latency_s >= settings.start_vm_above_s and high_for_s >= settings.tolerance_s:
        return True
    if period_ends and period_bytes < settings.keep_vm_bytes and latency_s < settings.keep_vm_above_s:
        return False
    return before


def phi_data(settings: SwitchingSettings, *, vm_before: bool, vm_ready: bool, latency_s: float) -> bool:
    """Equation 2: whether events go to the cloud in the next slot.

    Args:
        settings: the query's thresholds.
        vm_before: phi_VM of the slot before.
        vm_ready: whether any VM can take events.
        latency_s: L_{t-1}.
    """
    return vm_before and vm_ready and latency_s >= settings.send_above_s
