"""Which rule to follow: experts with switching costs, with a bound on what is paid beyond the best rule.

The weights are those of AdaHedge (de Rooij, van Erven, Grunwald, Koolen: Follow the Leader If You Can, Hedge If You
Must, JMLR 15, 2014, section 2): w(i) ~ p(i) exp(-eta A(i)), where A(i) is what rule i has cost and p its prior. The
rule to follow is drawn so that it is i with probability w(i) at each time, but changes as rarely as that allows, as in
the Shrinking Dartboard (Geulen, Vöcking, Winkler: Regret Minimization for Online Buffering Problems Using the Weighted
Majority Algorithm, COLT 2010): it changes with the probability TV(w, w'), half of the sum of the weights' changes.

AdaHedge's learning rate is eta = K / D, K = max ln 1 / p(i), where D adds up the mixability gaps: how much more the
weighted mean of the costs is than -1 / eta ln(sum w exp(-eta cost)). Here D also adds up S TV(w, w') for each change of
the weights, S being the price of a switch, so that the learning rate falls if weights swing.

The bound: since eta never rises, the second terms add up to at most A(i) + ln(1 / p(i)) / eta for each rule i (their
lemma 2, with a prior). So the expected cost, switches included, is at most A(i) + 2 D for each rule i, whatever the
costs are. They must not depend on what was drawn: the rules run in fluids of their own, so they do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from policies.arrays import Array


class Choosing:
    """Decides which rule is followed.

    Args:
        prior: how likely each rule is to be the best, before anything is known, shape (n,); all positive, sum 1.
        switch_usd: S, the price of a switch.
        chance: draws the switches.

    Attributes:
        followed: the index of the rule to follow now.
        switches: how often another rule was followed than before.
        usd: A, the account of each rule, shape (n,).
        weights: w, shape (n,).
        doubt_usd: D. The expected cost is at most that of the best rule and twice this.

    Raises:
        ValueError: the prior is none, or the price of a switch is negative.
    """

    def __init__(self, prior: Sequence[float], switch_usd: float, chance: np.random.Generator) -> None:
        self._prior = np.array(prior, dtype=np.float64)
        if not (self._prior > 0).all() or not math.isclose(self._prior.sum(), 1.0) or not switch_usd >= 0:
            raise ValueError(f"this is no prior: {prior}, or no price of a switch: {switch_usd}")
        self._most_surprise = -math.log(self._prior.min())
        self._switch_usd = switch_usd
        self._chance = chance
        self._eta = math.inf
        self.followed, self.switches = int(chance.choice(len(self._prior), p=self._prior)), 0
        self.usd: Array = np.zeros(len(self._prior))
        self.weights: Array = self._prior.copy()
        self.doubt_usd = 0.0

    def pay(self, usd: Sequence[float]) -> int:
        """Add what each rule has cost since the last call; return which one to follow from now on.

        Args:
            usd: the costs, shape (n,).

        Raises:
            ValueError: a cost is negative or not finite.
        """
        costs = np.array(usd, dtype=np.float64)
        if not (np.isfinite(costs).all() and (costs >= 0).all()):
            raise ValueError(f"these are no costs: {usd}")
        self.doubt_usd += self._gap(costs)
        if self.doubt_usd > 0:
            self._eta = self._most_surprise / self.doubt_usd
        self.usd = self.usd + costs
        before, self.weights = self.weights, self._weights()
        self.doubt_usd += self._switch_usd * float(np.maximum(before - self.weights, 0.0).sum())
        self._draw(before)
        return self.followed

    def _weights(self) -> Array:
        """Return the weights that belong to the accounts; without any doubt only the cheapest rules count."""
        excess = self.usd - self.usd.min()
        powers = np.exp(-self._eta * excess) if math.isfinite(self._eta) else (excess <= 0).astype(np.float64)
        weights = self._prior * powers
        return np.asarray(weights / weights.sum())

    def _gap(self, costs: Array) -> float:
        """Return the mixability gap: the weighted mean of the costs minus the mix."""
        likely = self.weights > 0
        excess, weights, eta = costs[likely] - costs[likely].min(), self.weights[likely], self._eta
        mean = float(weights @ excess)
        mix = 0.0 if math.isinf(eta) else -math.log(float(weights @ np.exp(-eta * excess))) / eta
        return max(0.0, mean - mix)

    def _draw(self, before: Array) -> None:
        """Follow another rule with a probability that keeps that of each rule equal to its weight."""
        now, gains = self.followed, np.maximum(self.weights - before, 0.0)
        if self._chance.random() * before[now] < self.weights[now] or gains.sum() <= 0:
            return
        self.followed = int(self._chance.choice(len(gains), p=gains / gains.sum()))
        self.switches += self.followed != now
