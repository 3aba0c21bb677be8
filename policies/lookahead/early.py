"""Sends events to the VMs of any policy before they are late; equation 2 of ESM waits until they are."""

from __future__ import annotations

from dataclasses import replace

from policies.advice import Advice, FitOrder, Seen, Site, VmPolicy
from policies.announcement import Announcement
from policies.gaussian.forecaster import Trained
from policies.lookahead.policy import LookaheadPolicy
from policies.queueing.loadtable import LoadTable


class EarlySending(VmPolicy):
    """Decides about VMs as another policy, and tells how long events would wait if none went to VMs.

    Args:
        inner: the query's policy.
        site: the settings that all queries share.
        latency_s: the promised latency.
    """

    def __init__(self, inner: VmPolicy, site: Site, latency_s: float) -> None:
        self.name, self.insists, self.phi_starts = inner.name, inner.insists, inner.phi_starts
        self.inner = inner
        self._ahead = LookaheadPolicy(site, latency_s)
        self._latency_s = latency_s
        self._told = self._of = Advice()

    def announce(self, announced: tuple[Announcement, ...]) -> None:
        """See ``VmPolicy.announce``."""
        self.inner.announce(announced)

    def advise(self, seen: Seen) -> Advice:
        """See ``VmPolicy.advise``."""
        advice, alone_s = self.inner.advise(seen), self._ahead.advise(seen).home_alone_s
        turns = (alone_s > self._latency_s) != (self._told.home_alone_s > self._latency_s)
        if turns or advice is not self._of:
            self._of, self._told = advice, replace(advice, home_alone_s=alone_s)
        return self._told

    def fit_order(self) -> FitOrder | None:
        """See ``VmPolicy.fit_order``."""
        return self.inner.fit_order()

    def fitted(self, models: tuple[Trained | LoadTable, ...], trouble: str) -> None:
        """See ``VmPolicy.fitted``."""
        self.inner.fitted(models, trouble)
