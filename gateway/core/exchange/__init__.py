"""The data path of one query, pure: where each run is, which lane it goes to, and what is released when.

``Exchange.handle`` takes an event and returns instructions. No other part of the gateway keeps a register of runs.
"""

from gateway.core.exchange.entry import SeqRange
from gateway.core.exchange.exchange import Exchange
from gateway.core.exchange.settings import ExchangeSettings
from gateway.core.exchange.views import LaneView, OpenRuns

__all__ = ["Exchange", "ExchangeSettings", "LaneView", "OpenRuns", "SeqRange"]
