"""The config's sections about a query's latency target, runs, order, dead letters and failures."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from gateway.config.words.fields import Duration, LongerThanZero, Section, Share, Size
from gateway.config.words.units import PAUSES_EXAMPLE, PAUSES_PATTERN, duration_s
from policies.failures.restarts import RestartTerms


class QosConfig(Section):
    """The latency target, and the statistic that it applies to.

    Attributes:
        latency_s: the target. All thresholds follow from it, unless ``switching`` sets them.
        statistic: what is compared with the target in each slot: the mean of the latencies, or their 95th percentile.
    """

    latency_s: LongerThanZero = Field(alias="latency")
    statistic: Literal["mean", "p95"] = "mean"


class OrderConfig(Section):
    """Results are released in this order.

    Attributes:
        by: ``arrival``, or a TIMESTAMP column of the schema.
        flush_s: a missing result is waited for at most this long. It is released when it comes, and marked as late.
    """

    by: str = Field(default="arrival", examples=["sent"])
    flush_s: Duration = Field(default=30.0, alias="flush")


class RunsConfig(Section):
    """When a run is closed: whichever limit is met first.

    Attributes:
        max_events: the most events in a run.
        max_bytes: the most bytes in a run.
        linger_s: the longest time that a run waits for more events.
    """

    max_events: int = Field(default=2000, ge=1, le=1_000_000)
    max_bytes: Annotated[Size, Field(ge=1024, le=64 * 2**20)] = 2**20
    linger_s: Duration = Field(default=0.1, alias="linger")


class DeadLettersConfig(Section):
    """When dead letters stop a query (docs/dead-letters.md).

    Attributes:
        limit_bytes: when the file of dead letters has reached this size, the query waits until they are replayed or
            dropped, or the limit is raised.
        most: when more than this part of the last 1,000 rows fail, the query counts as broken, not its data; 100%
            allows all rows to fail.
    """

    limit_bytes: Annotated[Size, Field(ge=1024)] = Field(default=1_000_000_000, alias="limit")
    most: Share = 0.2

    @property
    def bad_rows_most(self) -> int:
        """Return how many of 1,000 consecutive rows an engine host may find bad; 0 for all of them."""
        return 0 if self.most == 1 else max(1, int(self.most * 1000))


def _pauses(value: object) -> object:
    """Read ``5s..5m``, the first pause and the longest; a pause alone stays as long as it is."""
    first, _, most = str(value).partition("..")
    pauses_s = (duration_s(first), duration_s(most or first))
    if not 0 < pauses_s[0] <= pauses_s[1]:
        raise ValueError(
            f'"{value}" is not right; write the first pause and a longest that is not shorter, as in 5s..5m'
        )
    return pauses_s


class OnFailureConfig(Section):
    """What happens to a query that fails: it is opened again after pauses that double, while all others continue.

    Attributes:
        restart_s: the first pause and the longest; one alone stays as long as it is.
        give_up_after_s: once the query has failed for this long, it is not opened again. Default: no limit.
    """

    restart_s: Annotated[
        tuple[float, float],
        BeforeValidator(
            _pauses,
            json_schema_input_type=Annotated[str, Field(pattern=PAUSES_PATTERN, examples=[PAUSES_EXAMPLE])],
        ),
    ] = Field(default=(5.0, 300.0), alias="restart")
    give_up_after_s: LongerThanZero | None = Field(default=None, alias="give_up_after")

    @property
    def terms(self) -> RestartTerms:
        """Return the terms by which it is opened again."""
        return RestartTerms(first_s=self.restart_s[0], most_s=self.restart_s[1], give_up_after_s=self.give_up_after_s)
