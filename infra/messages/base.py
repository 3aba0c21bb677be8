"""The base of every message between the gateway and an engine host."""

from __future__ import annotations

from typing import Literal

import msgspec

PROTOCOL = 2

ChannelName = Literal["control", "data"]


class Message(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of every message; its tag on the wire is the struct's name unless it sets another."""
