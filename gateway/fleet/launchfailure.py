"""Why a launch failed, whether it still costs money, and when to launch again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from infra.clouds.base import BootError, Node, ThrottledError, UnavailableError
from policies.signals import VmFailed


def failure_of(vm: str, node: Node | None, error: Exception) -> Callable[[str, float], VmFailed]:
    """Return what makes the event, given its id and time.

    A machine that never booted, or booted the wrong thing, is on the provider's bill like any other; whether there was
    one at all is unknown when the provider did not answer.

    Args:
        vm: its name.
        node: the machine, if one came up.
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
