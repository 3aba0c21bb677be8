"""The rules that planning must beat, as policies: a fixed number of VMs, and the CPU threshold."""

from __future__ import annotations

from dataclasses import dataclass, replace

from policies.advice import ENGINES_HOME, Advice, Seen, Site, VmPolicy
from policies.planning.rules import CpuThreshold, Damped, DampingSettings
from policies.planning.windows import Window, WindowedPolicy


@dataclass(frozen=True, slots=True)
class StaticOptions:
    """The fixed number of VMs."""

    vms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuOptions:
    """When VMs are launched and terminated.

    Attributes:
        start_above: mean CPU use of two windows above which one more VM is wanted, in [0, 1].
        stop_below: the same, below which one VM less is wanted.
        window_s: length of a window.
    """

    start_above: float
    stop_below: float
    window_s: float


class StaticPolicy(VmPolicy):
    """Always the same number of VMs."""

    name = "static"
    insists = True
    phi_starts = False

    def __init__(self, options: StaticOptions) -> None:
        self._advice = Advice(wanted=options.vms, kept=options.vms, why=f"static: {options.vms} VMs always")

    def advise(self, seen: Seen) -> Advice:  # noqa: ARG002
        """See ``VmPolicy.advise``."""
        return self._advice


class CpuPolicy(WindowedPolicy):
    """One more VM above a load, one fewer below another (Castro Fernandez et al., as in Mayer et al., VI-B).

    At least a billing period passes between two changes, unless latencies are too high.

    Args:
        options: its thresholds.
        site: the settings that all queries share.
        latency_s: the promised latency.
    """

    name = "cpu"
    phi_starts = False

    def __init__(self, options: CpuOptions, site: Site, latency_s: float) -> None:
        super().__init__(site, options.window_s, latency_s)
        rule = CpuThreshold(ENGINES_HOME + site.max_vms, options.start_above, options.stop_below)
        self._rule = Damped(rule, DampingSettings(dead_band=0.0, cool_down_s=site.terms.period_s))
        # Its last answer, not the number of VMs: a VM that is not wanted any more ends only with its billing period.
        self._engines = ENGINES_HOME

    def decide(self, window: Window, seen: Seen) -> Advice:
        """See ``WindowedPolicy.decide``."""
        observation = self.observation(window, seen)
        if observation is None:
            vms = self._engines - ENGINES_HOME
            return Advice(wanted=vms, kept=vms, why="cpu: no event was processed so far")
        verdict = self._rule.decide(replace(observation, engines=self._engines))
        self._engines = verdict.engines
        vms = verdict.engines - ENGINES_HOME
        return Advice(wanted=vms, kept=vms, why=f"cpu: {vms} VMs: {verdict.why}")
