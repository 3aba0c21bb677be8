"""Tries the queries of a config over samples of their events, for ``spillway try``; nothing is written or sent."""
