"""The time of an engine host for a micro-batch, as ``spillway profile`` measured it: t = a + b n + c (runs - 1)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from engines.simulated.boot import BootTimes, Evenly, LogNormal, MeasuredTimes
from gateway.simulate.parameters.faults import FaultsSection

PAPER_MIPS = 2500.0
"""CEPSim's VM (Higashino et al., section V): the instructions per second of an engine host."""


class CalibrationError(ValueError):
    """A file is not a calibration; the message says where and why."""


class Measured(BaseModel):
    """One query on one engine host.

    Attributes:
        batch_s: a, the cost of a micro-batch of one run, however small.
        batch_error_s: its standard error.
        run_s: c, the cost of each further run in it.
        run_error_s: its standard error.
        batch_runs: the most runs in a micro-batch.
        event_s: b, the additional cost of an event.
        event_error_s: its standard error.
        events_per_s: 1 / b, the rate of a host in large batches.
        instructions_per_event: CEPSim's ipe, for a host of ``mips``.
        batches: how many were measured.
        events: how many events they had.
        event_bytes: raw size of an event.
        sent_part: bytes over the WAN per raw byte; None if that was not measured.
        sent_from: how it was measured.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_s: float = Field(ge=0, allow_inf_nan=False)
    batch_error_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    run_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    run_error_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    batch_runs: int = Field(default=1, ge=1)
    event_s: float = Field(gt=0, allow_inf_nan=False)
    event_error_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    events_per_s: float = Field(gt=0, allow_inf_nan=False)
    instructions_per_event: float = Field(gt=0, allow_inf_nan=False)
    batches: int = Field(default=0, ge=0)
    events: int = Field(default=0, ge=0)
    event_bytes: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    sent_part: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    sent_from: str | None = None


class LogNormalBoot(BaseModel):
    """Boot times whose median is ``cloud.boot`` of the config; ``spread``: standard deviation of their logarithm."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["lognormal"]
    spread: float = Field(ge=0, allow_inf_nan=False)

    def times(self) -> BootTimes:
        """Return the distribution."""
        return LogNormal(self.spread)


class EvenBoot(BaseModel):
    """Boot times uniform between ``least`` and ``most`` times ``cloud.boot`` of the config."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["uniform"]
    least: float = Field(ge=0, allow_inf_nan=False)
    most: float = Field(ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _in_order(self) -> EvenBoot:
        self.times()
        return self

    def times(self) -> BootTimes:
        """Return the distribution."""
        return Evenly(self.least, self.most)


class MeasuredBoot(BaseModel):
    """Measured boot times, all equally likely."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["measured"]
    times_s: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = Field(min_length=1)

    def times(self) -> BootTimes:
        """Return the distribution."""
        return MeasuredTimes(self.times_s)


class Calibration(BaseModel):
    """The file.

    Attributes:
        mips: the value used for ``instructions_per_event``.
        queries: by name.
        vm_speed: a VM's speed, relative to the private engine.
        boot: boot times; None: the default.
        faults: what goes wrong.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mips: float = Field(default=PAPER_MIPS, gt=0, allow_inf_nan=False)
    queries: dict[str, Measured] = Field(default_factory=dict)
    vm_speed: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    boot: Annotated[LogNormalBoot | EvenBoot | MeasuredBoot, Field(discriminator="type")] | None = None
    faults: FaultsSection = FaultsSection()


def read_calibration(*paths: Path) -> Calibration:
    """Read files of ``spillway profile``, YAML or JSON; sections about VMs and faults are written by hand.

    Args:
        paths: of a key, or a query, that is in several of them the last one counts.

    Raises:
        CalibrationError: one is not such a file.
    """
    together: dict[str, object] = {}
    queries: dict[str, Measured] = {}
    for path in paths:
        one = _read(path)
        together |= {key: getattr(one, key) for key in one.model_fields_set}
        queries |= one.queries
    return Calibration.model_construct(**{**together, "queries": queries})  # type: ignore[arg-type]


def _read(path: Path) -> Calibration:
    try:
        said = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        return Calibration.model_validate(said)
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise CalibrationError(f"{path} cannot be read: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        what = first["msg"].removeprefix("Value error, ")
        raise CalibrationError(f"{path}: {where}: {what}; see docs/simulation.md") from None


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write it as YAML.

    Raises:
        OSError: it cannot be written.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(calibration.model_dump(exclude_none=True, exclude={"faults"}), file)
