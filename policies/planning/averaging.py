"""Forecasts averaged by their past likelihood: dynamic model averaging (Raftery, Karny, Ettler 2010).

A Gaussian process explains rhythms. Without a rhythm, "as now" and "as a cycle ago" are often better. Each forecaster
gets a weight by the likelihood of its past forecasts, as far ahead as a VM takes to boot; old ones count less and less.
The plain forecasters work on square roots, as the process does (see ``gaussian.warping``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from policies.arrays import Array, IntArray
from policies.gaussian.calibration import ERRORS
from policies.gaussian.forecaster import Forecast
from policies.gaussian.warping import unwarped, warped

_REMEMBERED = 0.95
"""The weight of a likelihood one window later: half of it is left after 14 windows."""

_SURPRISE = 1e-3
"""The least density of every forecaster, as a part of the peak of the most certain one."""

_LEAST_ERRORS = 30
"""A plain forecaster is used once this many of its errors are known. Their spread is its uncertainty."""

_LEAST_SPREAD = 0.01
"""The least spread of a plain forecast, as a part of the greatest value (both as square roots).

After a calm time all errors are small, but the next burst is not."""

_LEAST_STD = 1e-6
"""The least standard deviation, as a part of the greatest value. It keeps every likelihood finite."""

_FAR = 1e3
"""Errors beyond this many standard deviations all count the same."""


class Averaged:
    """A model's forecasts, averaged with plain ones: "as now", and "as a cycle ago plus the change since then".

    Args:
        history: how many values are remembered.
        cycles: lengths of cycles, in windows; one is used once it fits into the history together with its errors.
        lead: how many windows ahead forecasts are judged.
    """

    def __init__(self, history: int, cycles: Sequence[int], lead: int) -> None:
        self._roots: deque[float] = deque(maxlen=history)
        self._cycles = (0, *sorted({cycle for cycle in cycles if cycle > 1}))  # 0: as now
        self._lead = lead
        self._pending: deque[tuple[Array, Array]] = deque(maxlen=lead)
        self._log_weights = np.zeros(1 + len(self._cycles))

    def look_ahead(self, lead: int) -> None:
        """Judge forecasts ``lead`` windows ahead from now on; the weights stay."""
        if lead != self._lead:
            self._lead, self._pending = lead, deque(maxlen=lead)

    def observe(self, value: float, model: Forecast | None) -> None:
        """Judge the past forecasts of a value, and add the value.

        Args:
            value: what was observed.
            model: the model's forecast of the windows after it, at least ``lead`` of them; None before there is a
                model.
        """
        if len(self._pending) == self._lead:
            self._judge(value, *self._pending[0])
        self._roots.append(float(warped(np.array(value))))
        if model is None:
            self._pending.clear()
        else:
            self._pending.append(self._all(model, self._lead - 1, self._lead))

    def forecast(self, model: Forecast) -> Forecast:
        """Return mean and standard deviation of the mixture of all forecasters.

        Args:
            model: the model's forecast of the next windows.
        """
        means, stds = self._all(model, 0, len(model.mean))
        asked = np.isfinite(means[:, 0])
        means, stds, logs = means[asked], stds[asked], self._log_weights[asked]
        weights = np.exp(logs - logs.max())[:, None]
        weights /= weights.sum()
        mean = (weights * means).sum(axis=0)
        std: Array = np.sqrt((weights * (stds**2 + (means - mean) ** 2)).sum(axis=0))
        return Forecast(mean, std)

    def _judge(self, value: float, means: Array, stds: Array) -> None:
        """Update the weights; a forecaster without a forecast gets the likelihood of the best."""
        asked = np.isfinite(means[:, 0])
        mean, std = means[asked, 0], stds[asked, 0]
        std = np.maximum(std, max(_LEAST_STD * max(value, mean.max()), np.finfo(float).tiny))
        likelihood = std.min() / std * np.exp(-0.5 * np.minimum(np.abs(value - mean) / std, _FAR) ** 2)
        logs = _REMEMBERED * self._log_weights[asked] + np.log(likelihood + _SURPRISE)
        self._log_weights[:] = 0.0
        self._log_weights[asked] = logs - logs.max()

    def _all(self, model: Forecast, first: int, last: int) -> tuple[Array, Array]:
        """Return each forecaster's means and standard deviations, the model's first, each of shape (n, last - first).

        Args:
            model: the model's forecast of at least ``last`` windows ahead.
            first: first window, 0 being the next one,
            last: end (exclusive) of the windows.
        """
        roots, leads = np.array(self._roots), np.arange(first + 1, last + 1)
        plain = [_plain(roots, cycle, leads) for cycle in self._cycles]
        means, stds = zip((model.mean[first:last], model.std[first:last]), *plain, strict=True)
        return np.array(means), np.array(stds)


def _plain(roots: Array, cycle: int, leads: IntArray) -> tuple[Array, Array]:
    """Return the forecast if the difference to a cycle ago stays the same; nan if there is too little history.

    Args:
        roots: what was observed, warped, shape (n,).
        cycle: its length; 0 means that the value itself stays the same.
        leads: windows ahead, 1 and more, shape (m,).

    Returns:
        Means and standard deviations in the unit observed, each of shape (m,).
    """
    errors_known = len(roots) - cycle - leads.max()
    if errors_known < _LEAST_ERRORS:
        return np.full(len(leads), np.nan), np.full(len(leads), np.nan)
    stays = roots[cycle:] - roots[: len(roots) - cycle] if cycle else roots
    last = len(stays) - 1 - np.arange(min(ERRORS, errors_known))
    squares = (stays[last][:, None] - stays[last[:, None] - leads]) ** 2
    spread = np.maximum(np.sqrt(squares.mean(axis=0)), _LEAST_SPREAD * roots.max())
    mean = np.full(len(leads), stays[-1])
    if cycle:
        mean += roots[len(roots) - 1 + leads - cycle * -(-leads // cycle)]
    return unwarped(mean, spread)
