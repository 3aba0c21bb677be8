"""When a plan is trusted: path rejection (Zacheilas et al., Algorithm 1), and the return to the plain rule."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from policies.arrays import Array
from policies.planning.stategraph import Path


@dataclass(frozen=True, slots=True)
class RejectionSettings:
    """The tolerance for errors of a plan.

    Attributes:
        most_uncertainty: theta_1: the plan is followed while the standard deviation of a window's cost, divided by that
            cost or by the price of one VM for a window, whichever is greater, is at most this.
        most_error: theta_2: the tolerated error of the input, as a part of the forecast.
        unit_usd: the price of one VM for a window.
    """

    most_uncertainty: float
    most_error: float
    unit_usd: float

    def __post_init__(self) -> None:
        if not min(self.most_uncertainty, self.most_error) >= 0 or not self.unit_usd > 0:
            raise ValueError(f"thresholds must not be negative, and a VM must cost something: {self}")


@dataclass(frozen=True, slots=True)
class PathStep:
    """The next step on a path.

    Attributes:
        state: how many VMs should serve in the window that begins.
        rejected: why the rest of the path is not followed; empty while it is.
    """

    state: int
    rejected: str


class PathWalker:
    """Follows a path window by window until it ends or is rejected; then a new one must be planned.

    Args:
        settings: the tolerance for errors.
    """

    def __init__(self, settings: RejectionSettings) -> None:
        self._settings = settings
        self._path: Path | None = None
        self._input: Array | None = None
        self._window = 0

    @property
    def needs_path(self) -> bool:
        """Return whether there is no path left to follow."""
        return self._path is None or self._window >= len(self._path.states)

    def adopt(self, path: Path, expected_input: Array) -> None:
        """Follow a new path.

        Args:
            path: the plan.
            expected_input: the input that was forecast for each of its windows, shape (windows,).
        """
        if len(expected_input) != len(path.states):
            raise ValueError(f"a path of {len(path.states)} windows needs as many forecasts, not {len(expected_input)}")
        self._path, self._input, self._window = path, expected_input, 0

    def advance(self) -> PathStep:
        """Move into the next window; an uncertain cost rejects the rest of the path.

        Raises:
            ValueError: there is no path to follow.
        """
        path = self._path
        if path is None or self.needs_path:
            raise ValueError("there is no path to follow: adopt one first")
        state, at = path.states[self._window], self._window
        uncertainty = path.arc_std_usd[at] / max(path.arc_usd[at], self._settings.unit_usd)
        self._window += 1
        if uncertainty <= self._settings.most_uncertainty:
            return PathStep(state, "")
        self._path = None
        limit = self._settings.most_uncertainty
        return PathStep(state, f"the cost's standard deviation is {uncertainty:.0%} of it, more than {limit:.0%}")

    def observe(self, seen_input: float) -> str:
        """Compare the current window with its forecast; return why the rest is rejected, or nothing."""
        if self._path is None or self._input is None or self._window == 0:
            return ""
        expected = float(self._input[self._window - 1])
        error = relative_error(seen_input, expected)
        if error <= self._settings.most_error:
            return ""
        self._path = None
        limit = self._settings.most_error
        return f"the input was {seen_input:g}, forecast {expected:g}: {error:.0%} off, more than {limit:.0%}"


def relative_error(seen: float, expected: float) -> float:
    """Return the error of ``seen`` as a part of ``expected``; infinite if 0 was expected but events came."""
    if expected == 0:
        return 0.0 if seen == 0 else math.inf
    return abs(seen - expected) / abs(expected)


class Trust:
    """Whether a model's forecasts have lately been better than those of the plain rule.

    The plain rule reacts to the present, so its forecast is that nothing changes. The plain rule decides until the
    model has been observed for a whole window, and while the model's mean absolute error there exceeds its own. The
    model is trusted again only if it is better by a margin, so that the two do not alternate. Where late events cost
    more than idle engines, an error counts as what it costs: too low a forecast counts more (the newsvendor's, or
    pinball, loss).

    Args:
        window: how many forecasts are looked at.
        margin: the part by which the model's error must be below the plain one's before the model is trusted again.
        late_factor: how many times an error counts if the forecast was too low.
    """

    def __init__(self, window: int = 12, margin: float = 0.1, late_factor: float = 1.0) -> None:
        if window < 1 or not 0 <= margin < 1 or not late_factor > 0:
            raise ValueError(
                f"a window of {window} forecasts, a margin of {margin:g} or a factor of {late_factor:g} makes no sense"
            )
        self._errors: deque[tuple[float, float]] = deque(maxlen=window)
        self._window = window
        self._margin = margin
        self._late_factor = late_factor
        self.trusted = False

    def observe(self, seen: float, model: float, plain: float) -> None:
        """Compare one pair of forecasts with the measured value.

        Args:
            seen: the value.
            model: the model's forecast.
            plain: the plain rule's forecast: the value when the forecast was made.
        """
        self._errors.append((self._error(seen, model), self._error(seen, plain)))
        if len(self._errors) < self._window:
            return
        model_error, plain_error = self._means()
        enough = plain_error if self.trusted else (1 - self._margin) * plain_error
        self.trusted = model_error <= enough

    @property
    def why(self) -> str:
        """Return who decides, and why, as a sentence."""
        if len(self._errors) < self._window:
            return f"the plain rule decides: {len(self._errors)} of {self._window} forecasts were checked so far"
        model_error, plain_error = self._means()
        weighed = "" if self._late_factor == 1 else f" (too little counts {self._late_factor:g} times)"
        mean = f"{model_error:.3g}{weighed}"
        figures = f"over the last {self._window} forecasts its mean error was {mean}, the plain rule's"
        if self.trusted:
            return f"the model decides: {figures} {plain_error:.3g}"
        return f"the plain rule decides, the model steps back: {figures} {plain_error:.3g}"

    def _error(self, seen: float, forecast: float) -> float:
        return max(forecast - seen, self._late_factor * (seen - forecast))

    def _means(self) -> tuple[float, float]:
        model, plain = zip(*self._errors, strict=True)
        return math.fsum(model) / len(model), math.fsum(plain) / len(plain)
