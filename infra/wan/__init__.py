"""A WAN between network namespaces: a kernel applies delay, jitter, loss, rate and cuts, changeable at run time."""

from infra.wan.errors import WanError, WanUnavailableError
from infra.wan.settings import Direction, WanSettings
from infra.wan.site import WanSite
from infra.wan.wan import Backend, Wan

__all__ = ["Backend", "Direction", "Wan", "WanError", "WanSettings", "WanSite", "WanUnavailableError"]
