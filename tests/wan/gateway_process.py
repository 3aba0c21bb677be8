"""The gateway's end of the link, at home: sends runs one after another and reconnects whenever the link is lost.

It prints what happens as JSON lines. A run that was not answered is sent again over the next link.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from pathlib import Path

from infra.clock import SystemClock
from infra.link.client import HostLink, LinkLost
from infra.link.keys.trust import Authority
from infra.messages import Completed, RunMessage

_PAYLOAD_BYTES = 100_000
_RETRY_S = 0.1


def say(**what: object) -> None:
    print(json.dumps({**what, "at_s": time.monotonic()}), flush=True)


async def converse(link: HostLink, first_seq: int) -> int:
    """Send and receive until the link is lost, and return the seq that is not answered."""
    seq = first_seq
    while True:
        payload = hashlib.sha256(str(seq).encode()).digest() * (_PAYLOAD_BYTES // 32)
        try:
            await link.send(RunMessage(query="q", epoch=1, first_seq=seq, last_seq=seq, attempt=0, rows=1), payload)
            message, answer = await link.receive()
        except LinkLost as lost:
            say(event="lost", reason=lost.reason)
            return seq
        assert isinstance(message, Completed)
        assert (message.first_seq, answer) == (seq, payload)
        say(event="answered", seq=seq, rtt_s=link.stats.rtt_s)
        seq += 1


async def main(address: tuple[str, int], authority: Authority, host: str, timeout_s: float) -> None:
    seq = number = 0
    while True:
        number += 1
        try:
            link = await HostLink.connect(
                address,
                authority,
                host,
                f"s{number}",
                clock=SystemClock(),
                heartbeat_s=0.2,
                heartbeat_timeout_s=timeout_s,
                connect_timeout_s=3.0,
            )
        except LinkLost:
            await asyncio.sleep(_RETRY_S)
            continue
        say(event="linked", session=number)
        seq = await converse(link, seq)


if __name__ == "__main__":
    folder, where, port, name, timeout = sys.argv[1:]
    asyncio.run(main((where, int(port)), Authority.open(Path(folder)), name, float(timeout)))
