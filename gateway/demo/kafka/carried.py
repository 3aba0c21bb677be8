"""Who carried the mails of a run: Spark by itself, the gateway at home, or VMs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.demo.kafka.turns import HandOver
from gateway.demo.report import Mode, ModeRun, Report
from gateway.views.runrecord import GatewayRecord, Slot
from infra.messages import CHECKPOINT_S
from policies.signals import HOME


class CarriedBy(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a run by who carried them, and the hand-overs.

    Attributes:
        spark: events that Spark at home read and delivered by itself.
        gateway: events that passed through the gateway and were processed at home.
        vms: events that the gateway sent to VMs.
        hand_overs: when the gateway took partitions over.
    """

    spark: int
    gateway: int
    vms: int
    hand_overs: tuple[HandOver, ...]


class CarriedRun(ModeRun, frozen=True, kw_only=True):
    """A mode's run, and who carried its mails."""

    carried: CarriedBy


class CarriedReport(Report, frozen=True, kw_only=True):
    """The content of ``report.json``, with who carried the mails in each mode."""

    carried: Mapping[Mode, CarriedBy]


def carried_by(record: GatewayRecord, found: tuple[HandOver, ...]) -> CarriedBy:
    """Return who carried the events of a record."""
    lanes, spark = record.totals.events_by_lane, record.totals.direct_events
    home = lanes.get(HOME, 0)
    return CarriedBy(spark=spark, gateway=home - spark, vms=sum(lanes.values()) - home, hand_overs=found)


def rates_per_s(slots: Sequence[Slot]) -> dict[str, NDArray[np.float64]]:
    """Return the events per second that each carried, by slot; each array has shape (slots,).

    What Spark tells at once is spread evenly over the time since it told before.
    """
    ends_s = np.array([slot.at_s for slot in slots])
    lengths_s = np.maximum(np.diff(ends_s, prepend=0.0), 1e-3)
    home = np.array([slot.completed.get(HOME, 0) for slot in slots], dtype=float)
    vms = np.array([sum(slot.completed.values()) for slot in slots], dtype=float) - home
    spark = np.zeros(len(slots))
    for index, slot in enumerate(slots):
        if slot.direct:
            since = int(np.searchsorted(ends_s, ends_s[index] - CHECKPOINT_S, side="right"))
            spark[since : index + 1] += slot.direct / lengths_s[since : index + 1].sum()
    return {"spark": spark, "gateway": home / lengths_s, "vms": vms / lengths_s}
