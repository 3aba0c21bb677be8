"""The models of a query's input and engines: Gaussian processes, when they are trained, and whether they are trusted.

Observing and forecasting happen where decisions are made. A ``FitOrder`` requests a training, in a quiet moment if
there is one; its result is adopted when it is ready.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from policies.advice import Expected, FitOrder
from policies.arrays import Array
from policies.gaussian.forecaster import Forecast, Forecaster, Trained
from policies.planning.averaging import Averaged
from policies.planning.elasticity import Trust

_LEAST_WINDOWS = 24
"""This many windows are observed before the first training."""

_REFITS = 10
"""The models are trained again when a tenth of the history is new."""

_Z_90 = 1.6449
"""An interval of this many standard deviations to either side contains 90 % of the values."""

_UNSURE = 0.1
"""Engine times without a model are assumed to be accurate up to this part."""

_CHECKED = 12
"""This many of the last times per event are forecast once more to check their model."""

_SMALL = 0.05
"""An error below this part of the input, or of an engine's capacity, changes no plan: it counts as zero.

Otherwise the plain rule, which is nearly exact while nothing happens, would win in each calm before a burst.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningOptions:
    """How the models learn.

    Attributes:
        window_s: length of a window; each gives one observation.
        history: how many windows are remembered.
        cycles_s: cycles to look for, besides time of day and day of week.
        lead: how many windows ahead a forecast must be good: until a VM that is ordered now serves.
        late_factor: how much worse a forecast is that is too low than one that is too high by the same amount.
        spare_engines: a forecast that is too high by the capacity of this many engines changes no plan.
        busy_lead: how many windows ahead the time per event is needed, and its forecasts are judged.
    """

    window_s: float
    history: int
    cycles_s: tuple[float, ...]
    lead: int
    late_factor: float = 1.0
    spare_engines: float = _SMALL
    busy_lead: int = 1


class Learned:
    """The two models of a query: input rate, and how long an engine is busy with an event (Zacheilas et al., III-B)."""

    def __init__(self, options: LearningOptions) -> None:
        self._options = options
        self._input = Forecaster(options.history, options.cycles_s)
        self._busy = Forecaster(options.history, ())
        self._busy_unit_s: float | None = None
        cycles = [round(cycle_s / options.window_s) for cycle_s in options.cycles_s]
        self._averaged = Averaged(options.history, cycles, options.lead)
        self._trust = Trust(late_factor=options.late_factor)
        # The best capacity to keep ready is this quantile of the forecast (the newsvendor problem), so it is judged.
        self._judged_z = float(ndtri(options.late_factor / (1 + options.late_factor)))
        self._pending: deque[tuple[int, float, float]] = deque()
        self._windows = 0
        self._ordered_at: int | None = None
        self._fitted_at = 0
        self._trouble = ""

    @property
    def ready(self) -> bool:
        """Return whether there is a model of the input."""
        return self._input.model is not None

    @property
    def trusted(self) -> bool:
        """Return whether its forecasts have lately been better than the plain rule's."""
        return self.ready and self._trust.trusted

    @property
    def why(self) -> str:
        """Return who decides, and why."""
        if self.ready:
            return self._trust.why
        if self._trouble:
            return f"the plain rule decides: there is no model, as training failed ({self._trouble})"
        if self._ordered_at is not None:
            return "the plain rule decides: the first model is being trained"
        if self._windows < _LEAST_WINDOWS:
            seen = f"{self._windows} of {_LEAST_WINDOWS} windows were seen"
            return f"the plain rule decides: {seen} before the first training"
        return "the plain rule decides: the first training waits for a quiet moment, but not for long"

    # ------------------------------------------------------------------------------------------------------ observing

    def observe(self, wall_s: float, rate: float, engines: int, event_s: float | None) -> None:
        """Add a window that ended at ``wall_s``, and judge the past forecasts of it.

        Args:
            wall_s: seconds since 1970.
            rate: events per second.
            engines: how many served.
            event_s: how long an engine is busy with an event; None if that is not known.
        """
        self._windows += 1
        middle_s = wall_s - self._options.window_s / 2
        while self._pending and self._pending[0][0] <= self._windows:
            _, ready, plain = self._pending.popleft()
            self._trust.observe(rate, *(self._judged(rate, value, event_s) for value in (ready, plain)))
        self._input.observe(middle_s, rate)
        if event_s is not None:
            # In units of the first one: the models' bounds on noise assume that scale.
            self._busy_unit_s = self._busy_unit_s or event_s
            self._busy.observe(middle_s, event_s / self._busy_unit_s, engines)
        lead = self._options.lead
        model = self._input.forecast(self._middles_s(wall_s, lead)) if self.ready else None
        self._averaged.observe(rate, model)
        if model is not None:
            ahead = self._averaged.forecast(model)
            ready = float(ahead.mean[-1] + self._judged_z * ahead.std[-1])
            self._pending.append((self._windows + lead, ready, rate))

    def look_ahead(self, lead: int, busy_lead: int = 1) -> None:
        """Judge forecasts as far ahead as these numbers of windows from now on (see ``LearningOptions``)."""
        if lead != self._options.lead:
            self._pending.clear()  # forecasts of windows that are judged out of turn now
            self._averaged.look_ahead(lead)
        self._options = replace(self._options, lead=lead, busy_lead=busy_lead)

    def _judged(self, rate: float, forecast: float, event_s: float | None) -> float:
        """Return the value that a forecast counts as; it counts as right if its error changes no plan."""
        engine_rate = 0.0 if event_s is None else 1.0 / event_s
        part = self._options.spare_engines if forecast > rate else _SMALL
        return rate if abs(rate - forecast) <= max(_SMALL * rate, part * engine_rate) else forecast

    def input_ahead(self, wall_s: float, windows: int) -> Forecast:
        """Return the input rate of the next windows, the first of which begins at ``wall_s``."""
        return self._averaged.forecast(self._input.forecast(self._middles_s(wall_s, windows)))

    def expected(self, wall_s: float) -> Expected:
        """Return the forecast of the window in which a VM that is ordered now serves."""
        ahead = self.input_ahead(wall_s, self._options.lead)
        mean, wide = float(ahead.mean[-1]), _Z_90 * float(ahead.std[-1])
        in_s = (self._options.lead - 0.5) * self._options.window_s
        return Expected(in_s, mean, max(0.0, mean - wide), mean + wide)

    def busy_ahead(self, wall_s: float, engines: Array, event_s: float) -> tuple[Array, Array]:
        """Return mean and standard deviation of an engine's time per event for each number of engines.

        Args:
            wall_s: the moment.
            engines: numbers of engines, shape (states,).
            event_s: the time to use while no model is trusted. A model that was trained on times of another order of
                magnitude, such as those of the first batches, would make every engine look useless.
        """
        if self._busy.model is None or self._busy_unit_s is None or not self._busy_is_right():
            return np.full(len(engines), event_s), np.full(len(engines), _UNSURE * event_s)
        forecast = self._busy.forecast(np.full(len(engines), wall_s), engines)
        # A forecast time of 0 would be an engine with unlimited capacity.
        mean = np.maximum(forecast.mean * self._busy_unit_s, _UNSURE * event_s)
        return mean, forecast.std * self._busy_unit_s

    def _busy_is_right(self) -> bool:
        """Return whether the model would have forecast the last times per event well, or at least better than "as now".

        They are checked each time, since a new model may be wrong, and for the engines that really served.
        """
        trust = Trust(window=_CHECKED)
        for seen, model, plain in zip(*self._busy.lately(self._options.busy_lead, _CHECKED), strict=True):
            near = (seen if abs(each - seen) <= _UNSURE * seen else each for each in (model, plain))
            trust.observe(seen, *near)
        return trust.trusted

    def _middles_s(self, wall_s: float, windows: int) -> Array:
        return np.asarray(wall_s + self._options.window_s * (np.arange(windows) + 0.5), dtype=np.float64)

    # ------------------------------------------------------------------------------------------------------- learning

    def fit_order(self, *, quiet: bool) -> FitOrder | None:
        """Return what to train now, if it is time and the moment is quiet; after some time it need not be quiet.

        Args:
            quiet: whether nothing else is going on.
        """
        if self._ordered_at is not None or self._windows < _LEAST_WINDOWS:
            return None
        every = max(_LEAST_WINDOWS, self._options.history // _REFITS)
        if not (self.ready or self._trouble):
            every = _LEAST_WINDOWS  # there is no forecast before the first training
        waited = self._windows - self._fitted_at
        due = waited >= every
        if not due or not (quiet or waited >= 2 * every):
            return None
        self._ordered_at = self._windows
        models = [self._input, self._busy] if self._busy.trainable else [self._input]
        return FitOrder(tuple(model.training_set() for model in models))

    def fitted(self, models: tuple[Trained, ...], trouble: str) -> None:
        """Adopt the result of a training; if it failed, the earlier models stay."""
        self._fitted_at, self._ordered_at, self._trouble = self._windows, None, trouble
        for forecaster, trained in zip((self._input, self._busy), models, strict=False):
            forecaster.adopt(trained)
