"""The account of one rented VM: its times, its traffic, and its cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from policies.money.billing import NO_TRAFFIC, BillingTerms, Traffic
from policies.vms.use import BlockUse
from policies.vms.vm import VmInput, VmState

_WARM_UP_S = 10.0
"""The first micro-batches of a VM also compile: on a busy machine they took three times as long as later ones."""

_OUT_OF_USE = frozenset({VmState.ENDING, VmState.FAILED, VmState.LOST, VmState.GONE})


@dataclass(frozen=True, slots=True)
class VmBill:
    """The cost of a VM, up to the end of its current block.

    Attributes:
        vm: its name.
        billed_s: time that is paid for.
        used_s: time in which it could take events, or still worked on some.
        unused_s: the rest of the paid time: its boot, and the rest of the last block.
        sent_bytes: sent to it over the WAN.
        usd: time and traffic.
        received_bytes: received from it over the WAN.
    """

    vm: str
    billed_s: float
    used_s: float
    unused_s: float
    sent_bytes: int
    usd: float
    received_bytes: int = 0


class VmLease(NamedTuple):
    """The state of a VM, and until when it is paid for; see ``VmAccount``."""

    vm: str
    state: VmState
    block_since_s: float
    block_end_s: float
    ends_s: float


@dataclass(slots=True)
class VmAccount:
    """One VM.

    Attributes:
        name: also the name of its lane.
        terms: its price.
        state: its state.
        since_s: when it entered this state.
        billing_since_s: when the cloud began to bill it; its start, until the cloud reports the exact time.
        block_since_s: when the billed block began that ends at ``block_end_s``.
        block_end_s: when the next period begins.
        ends_s: when the cloud reclaims it, if the cloud announced it.
        payers: the queries that asked for it, or kept it; they share the cost of its time equally.
        block_raw_bytes: D by query: raw bytes sent since the last keep-or-stop decision.
        block_use: what it was good for since then; its first seconds do not count.
        block_payload_bytes: payloads sent since the cost was last booked, by query.
        block_traffic_usd: the price of the traffic since then, by query.
        slot_traffic_usd: the price of the traffic in the last slot, by query.
        traffic: bytes over the WAN in its whole life.
        settled_s: billed time that was booked.
        settled_usd: what was booked for it.
        ready_s: when it became ready.
        out_of_use_s: when it was terminated, or failed, or was lost.
    """

    name: str
    terms: BillingTerms
    state: VmState = VmState.ABSENT
    since_s: float = 0.0
    billing_since_s: float = 0.0
    block_since_s: float = 0.0
    block_end_s: float = 0.0
    ends_s: float = math.inf
    payers: tuple[str, ...] = ()
    block_raw_bytes: Counter[str] = field(default_factory=Counter)
    block_use: BlockUse = field(default_factory=BlockUse)
    block_payload_bytes: Counter[str] = field(default_factory=Counter)
    block_traffic_usd: dict[str, float] = field(default_factory=dict)
    slot_traffic_usd: dict[str, float] = field(default_factory=dict)
    traffic: Traffic = NO_TRAFFIC
    settled_s: float = 0.0
    settled_usd: float = 0.0
    ready_s: float | None = None
    out_of_use_s: float | None = None

    @property
    def lease(self) -> VmLease:
        """Return its state as a value."""
        return VmLease(self.name, self.state, self.block_since_s, self.block_end_s, self.ends_s)

    @property
    def is_used(self) -> bool:
        """Whether any event was sent to it since the last keep-or-stop decision, or answered by it."""
        return bool(self.block_raw_bytes.total() or self.block_use.answered_events or self.block_use.sent_events)

    def is_warm(self, at_s: float) -> bool:
        """Return whether its times say something of it: those of its first micro-batches are those of a cold engine."""
        return self.ready_s is not None and at_s - self.ready_s > _WARM_UP_S

    def note(self, happened: VmInput, at_s: float) -> None:
        """Note when its use began and ended."""
        if happened in (VmInput.READY, VmInput.ADOPTED) and self.state is VmState.IDLE:
            self.ready_s = at_s
        if self.state in _OUT_OF_USE and self.out_of_use_s is None:
            self.out_of_use_s = at_s

    def meter(self, payload_bytes: Mapping[str, int], measured: Traffic | None) -> None:
        """Count the traffic of a slot.

        A link carries more than payloads: frames, dictionaries, heartbeats, results. The queries share its price in
        proportion to their payloads since the cost was last booked; before the first payload, the payers share it.

        Args:
            payload_bytes: sent in the slot, by query.
            measured: all bytes over its links; None where there is no link to measure: then the payloads count.
        """
        self.block_payload_bytes.update(payload_bytes)
        if measured is None:
            found, shares = Traffic(sum(payload_bytes.values())), payload_bytes
        else:
            found, shares = measured, self.block_payload_bytes or Counter(self.payers)
        usd, parts = self.terms.traffic_usd(found), sum(shares.values())
        self.slot_traffic_usd = {query: usd * part / parts for query, part in shares.items()} if parts else {}
        for query, part_usd in self.slot_traffic_usd.items():
            self.block_traffic_usd[query] = self.block_traffic_usd.get(query, 0.0) + part_usd
        self.traffic += found

    def billed_s(self, at_s: float) -> float:
        """Return the time billed up to the end of the block that ``at_s`` falls into."""
        return self.terms.billed_s(self.billing_since_s, max(at_s, self.billing_since_s))

    def owed_usd(self, at_s: float) -> dict[str, float]:
        """Return by query its cost up to the end of the block that ``at_s`` falls into, less what was booked."""
        time_usd = self.terms.time_usd(max(0.0, self.billed_s(at_s) - self.settled_s))
        return costs(time_usd, self.payers, self.block_traffic_usd)

    def settle(self, at_s: float) -> dict[str, float]:
        """Mark what is owed as booked, and return it."""
        owed_usd = self.owed_usd(at_s)
        self.settled_s = max(self.settled_s, self.billed_s(at_s))
        self.settled_usd += math.fsum(owed_usd.values())
        self.block_payload_bytes.clear()
        self.block_traffic_usd.clear()
        return owed_usd

    def bill(self, at_s: float, *, billed: bool = True) -> VmBill:
        """Return its cost up to now; nothing for time if the cloud does not bill it."""
        billed_s = self.billed_s(at_s) if billed else 0.0
        until_s = at_s if self.out_of_use_s is None else self.out_of_use_s
        used_s = 0.0 if self.ready_s is None else min(billed_s, max(0.0, until_s - self.ready_s))
        usd = self.settled_usd + (math.fsum(self.owed_usd(at_s).values()) if billed else 0.0)
        sent_bytes, received_bytes = self.traffic.sent_bytes, self.traffic.received_bytes
        return VmBill(self.name, billed_s, used_s, billed_s - used_s, sent_bytes, usd, received_bytes)


def costs(time_usd: float, payers: tuple[str, ...], traffic_usd: Mapping[str, float]) -> dict[str, float]:
    """Return the cost by query: of time, in equal parts, and of each query's traffic."""
    usd = {payer: time_usd / len(payers) for payer in payers}
    for query, part_usd in traffic_usd.items():
        usd[query] = usd.get(query, 0.0) + part_usd
    return usd
