"""Why a launch failed, whether it still costs money, and when to launch again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from infra.clouds.base import BootError, Node, ThrottledError, UnavailableError
from policies.signals import VmFailed


def failure_of(vm: str, node: Node | None, error: Exception) -> Callable[[str, float], VmFailed]:
    """Return a function that creates the event from its id and time.

    A VM that never booted, or whose host was wrong, is billed like any other. If the provider did not answer, it is
    unknown whether there was a VM at all.

    Args:
        vm: its name.
        node: the VM, if one booted.
        error: why the VM cannot be used.
    """
    failed = partial(
        VmFailed,
        vm=vm,
        reason=str(error),
        billed=node is not None or isinstance(error, BootError | UnavailableError),
        after_s=error.after_s if isinstance(error, ThrottledError | UnavailableError) else 0.0,
    )
    return lambda event_id, at_s: failed(event_id=event_id, at_s=at_s)
