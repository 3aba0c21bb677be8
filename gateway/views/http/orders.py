"""What requests contain: the bodies of actions and the parameters of lists, as models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gateway.config.words.units import DURATION, duration_s

_WEEK_S = 7 * 86_400.0
_INT_MOST = 2**53

_DurationText = Annotated[str, Field(pattern=DURATION.pattern, max_length=32, examples=["1h"])]
HowLong = Annotated[float, Field(gt=0, le=_WEEK_S), BeforeValidator(duration_s, json_schema_input_type=_DurationText)]


class OrderModel(BaseModel):
    """Base of everything that is sent: an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NoOrder(OrderModel):
    """An action that needs no more than its address."""


class PinOrder(OrderModel):
    """Where a query's events go, whatever its latency."""

    to: Literal["home", "cloud"] | Annotated[float, Field(gt=0, lt=1, strict=True)] = Field(
        description="home, cloud (all events), or the part of the events that goes to VMs, as in 0.3.",
        examples=["home", 0.3],
    )
    for_s: HowLong = Field(default=3600.0, alias="for", description="At most 7 days.", examples=["1h"])

    @property
    def cloud_share(self) -> float:
        """Return the part of the events that goes to VMs."""
        return {"home": 0.0, "cloud": 1.0}[self.to] if isinstance(self.to, str) else self.to


class PauseOrder(OrderModel):
    """How long all decisions are paused."""

    for_s: HowLong = Field(default=3600.0, alias="for", description="At most 7 days.", examples=["1h"])


class DecisionsAsked(OrderModel):
    """Which decisions are listed."""

    query: str | None = Field(default=None, max_length=64, description="Only those about this query.")
    before: float | None = Field(default=None, ge=0, le=_INT_MOST, description="Only older ones: seconds since 1970.")
    limit: int = Field(default=50, ge=1, le=500)


class LettersAsked(OrderModel):
    """Which dead letters are listed."""

    after: int = Field(default=0, ge=0, le=_INT_MOST, description="Begin there: next of the answer before.")
    limit: int = Field(default=50, ge=1, le=200)


class HistoryAsked(OrderModel):
    """Which query's figures are listed."""

    query: str | None = Field(default=None, max_length=64, description="Only this query's figures.")


class StreamAsked(OrderModel):
    """Where the stream begins."""

    after: int | None = Field(default=None, ge=0, le=_INT_MOST, description="Begin after this moment. Default: now.")
