"""Selections: the events that one window or pattern of an operator needs (Mayer et al., section IV)."""
