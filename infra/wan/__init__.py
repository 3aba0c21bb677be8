"""A WAN between network namespaces: delay, jitter, loss, rate and cuts made by a kernel, changed while it is in use."""

from infra.wan.errors import WanError, WanUnavailableError
from infra.wan.settings import Direction, WanSettings
from infra.wan.site import WanSite
from infra.wan.wan import Backend, Wan

__all__ = ["Backend", "Direction", "Wan", "WanError", "WanSettings", "WanSite", "WanUnavailableError"]
