"""What a link knows about its path: read from the kernel, and added up by hand."""

from __future__ import annotations

import socket
import time
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.link.tcp import TcpCounts, TcpMeter, tcp_counts

DEADLINE_S = 60.0


def test_the_kernel_counts_what_the_other_end_has() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            before = tcp_counts(near)
            assert before is not None
            near.sendall(bytes(100_000))
            taken = 0
            while taken < 100_000:
                taken += len(far.recv(1 << 16))
            ends_s = time.monotonic() + DEADLINE_S
            while (after := tcp_counts(near)) is None or after.acked_bytes < before.acked_bytes + 100_000:
                assert time.monotonic() < ends_s, "the kernel never counted what was taken"
            assert after.acked_bytes == before.acked_bytes + 100_000
            assert after.segments > before.segments
            assert after.again == 0
            assert after.sent_bytes == before.sent_bytes + 100_000
            there = tcp_counts(far)
            assert there is not None
            assert there.received_bytes == 100_000


def test_a_closed_socket_and_an_older_kernel_say_nothing() -> None:
    closed = socket.socket()
    closed.close()
    assert tcp_counts(closed) is None

    class Older:
        def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes:
            return bytes(104)

    assert tcp_counts(Older()) is None


def test_a_meter_knows_nothing_at_first() -> None:
    meter = TcpMeter()
    assert (meter.goodput_bytes_per_s, meter.loss) == (None, None)
    meter.look(1.0, None)
    meter.look(1.0, TcpCounts(500, 5, 1))
    assert (meter.goodput_bytes_per_s, meter.loss) == (None, None)


Steps = st.lists(
    st.tuples(st.floats(0.01, 10), st.integers(0, 10**9), st.integers(0, 1000), st.integers(0, 1000)),
    min_size=2,
    max_size=60,
)


@given(Steps)
def test_goodput_and_loss_are_those_of_the_last_looks(steps: list[tuple[float, int, int, int]]) -> None:
    meter = TcpMeter()
    times_s = list(accumulate(step[0] for step in steps))
    totals = [list(accumulate(step[n] for step in steps)) for n in (1, 2, 3)]
    for at_s, acked, segments, again in zip(times_s, *totals, strict=True):
        meter.look(at_s, TcpCounts(acked, segments, again))
    last = steps[-20:] if len(steps) > 20 else steps[1:]
    took_s = times_s[-1] - times_s[-len(last) - 1]
    assert meter.goodput_bytes_per_s == pytest.approx(sum(step[1] for step in last) / took_s)
    sent = sum(step[2] for step in last)
    assert meter.loss == (min(1.0, sum(step[3] for step in last) / sent) if sent else None)
