"""The CPUs of each process VM, chosen so that home and the VMs slow each other down as little as possible."""

from __future__ import annotations

import os


def cpu_numbers(text: str) -> list[int]:
    """Return the CPUs of a set such as ``0-1,3``."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return sorted(numbers)


def available_cpus() -> list[int]:
    """Return the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cloud_cpu_sets(available: list[int], private: list[int]) -> list[str]:
    """Return one CPU set for each VM place, assigned round robin.

    The VMs leave the CPUs of home free. With a single CPU, or when none is left, VMs share all CPUs.

    Args:
        available: all CPUs that may be used, sorted.
        private: the CPUs of home; empty means the first one.
    """
    kept = set(private or available[:1])
    rest = [cpu for cpu in available if cpu not in kept]
    return [str(cpu) for cpu in rest or available]
