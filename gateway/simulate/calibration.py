"""What an engine host takes for a micro-batch, as ``spillway profile`` measured it: t = a + b n + c (runs - 1)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from engines.simulated.boot import BootTimes, Evenly, LogNormal, MeasuredTimes

PAPER_MIPS = 2500.0
"""CEPSim's VM (Higashino et al., section V): how many instructions a second stand for an engine host."""


class CalibrationError(ValueError):
    """A file does not hold what was measured; the message says where and why."""


class Measured(BaseModel):
    """One query on one engine host.

    Attributes:
        batch_s: a, what a micro-batch of one run costs however small it is.
        batch_error_s: its standard error.
        run_s: c, what each further run in it costs.
        run_error_s: its standard error.
        batch_runs: so many runs a micro-batch takes at most.
        event_s: b, what an event costs besides.
        event_error_s: its standard error.
        events_per_s: 1 / b, what a host serves in large batches.
        instructions_per_event: CEPSim's ipe, if a host were one of ``mips``.
        batches: so many were measured.
        events: in so many events.
        event_bytes: raw size of an event.
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


class LogNormalBoot(BaseModel):
    """Boot times whose median is ``cloud.boot`` of the config; ``spread``: standard deviation of their logarithm."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["lognormal"]
    spread: float = Field(ge=0, allow_inf_nan=False)

    def times(self) -> BootTimes:
        """Return the distribution."""
        return LogNormal(self.spread)


class EvenBoot(BaseModel):
    """Boot times evenly between ``least`` and ``most`` times ``cloud.boot`` of the config."""

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
    """Boot times that were seen, each as likely as any other."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["measured"]
    times_s: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = Field(min_length=1)

    def times(self) -> BootTimes:
        """Return the distribution."""
        return MeasuredTimes(self.times_s)


class Calibration(BaseModel):
    """The file.

    Attributes:
        mips: as they were taken for ``instructions_per_event``.
        queries: by name.
        vm_speed: how much of the private engine's work a VM does in the same time.
        boot: boot times; None: as usual.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mips: float = Field(default=PAPER_MIPS, gt=0, allow_inf_nan=False)
    queries: dict[str, Measured] = Field(default_factory=dict)
    vm_speed: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    boot: Annotated[LogNormalBoot | EvenBoot | MeasuredBoot, Field(discriminator="type")] | None = None


def read_calibration(path: Path) -> Calibration:
    """Read a file of ``spillway profile``, YAML or JSON; a VM's speed and how boot times spread are added by hand.

    Raises:
        CalibrationError: it is no such file.
    """
    try:
        said = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        return Calibration.model_validate(said)
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise CalibrationError(f"{path} cannot be read: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise CalibrationError(f"{path}: {where}: {first['msg']}; write it with spillway profile") from None


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write it as YAML.

    Raises:
        OSError: it cannot be written.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(calibration.model_dump(exclude_none=True), file)
