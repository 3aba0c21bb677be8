"""Events, commands and settings as JSON, and back without any loss.

A dataclass becomes an object whose key ``$`` holds the name of its class; fields with their default value are left out.
Floats are written so that exactly the same number is read, infinity and NaN included. Tuples become arrays; frozen sets
and numpy arrays become objects with ``$`` too. No mapping here has a key ``$``: keys are names of queries, lanes and
rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

_TAG = "$"
_WRITTEN_AS = {"LedgerEntry": "Entry", "PolicyAnswer": "Answer"}
"""Classes whose names in logs are older than their names in the code."""


def dumps(value: object) -> str:
    """Return a value as one line of JSON.

    Raises:
        TypeError: it contains something other than plain values.
    """
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def loads(text: str | bytes) -> Any:
    """Return the value that ``dumps`` wrote.

    Raises:
        ValueError: ``dumps`` did not write it, or another version of Spillway did.
    """
    try:
        return _valued(json.loads(text))
    except (TypeError, KeyError) as error:
        raise ValueError(f"it was not written by this version of Spillway ({error})") from error


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        told = {each.name: getattr(value, each.name) for each in fields(value)}
        left = {each.name: _plain(told[each.name]) for each in fields(value) if not _is_default(each, told[each.name])}
        name = type(value).__name__
        return {_TAG: _WRITTEN_AS.get(name, name), **left}
    if isinstance(value, frozenset):
        return {_TAG: "set", "of": sorted(value)}
    if isinstance(value, np.ndarray):
        return {_TAG: "array", "shape": list(value.shape), "of": value.ravel().tolist()}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a plain value: {value!r}")


def _is_default(field: Field[Any], value: object) -> bool:
    if field.default is not MISSING:
        # 0 is not a default for 0.0, nor 1 for True: the type must survive.
        return type(value) is type(field.default) and value == field.default
    return isinstance(value, Mapping | frozenset) and not value and field.default_factory is not MISSING


def _valued(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_valued(each) for each in value)
    if not isinstance(value, dict):
        return value
    of = {key: _valued(each) for key, each in value.items() if key != _TAG}
    match value.get(_TAG):
        case None:
            return MappingProxyType(of)
        case "set":
            return frozenset(of["of"])
        case "array":
            return np.array(of["of"], dtype=np.float64).reshape(of["shape"])
        case name:
            return _classes()[name](**of)


@cache
def _classes() -> Mapping[str, Callable[..., Any]]:
    """Return the classes that are written, by name; the planner's need scipy, which takes long to import."""
    from engines.simulated.metrics import GraphsSettings, MetricsEntry
    from gateway.core.decide.scheduler import SchedulerSettings
    from policies import advice, announcement, signals, slot, steering
    from policies.auto import policy as auto
    from policies.gaussian import forecaster, kernels, likelihood
    from policies.lookahead import policy as lookahead
    from policies.money import billing, ledger
    from policies.planning import plain, planner, queueing
    from policies.queueing import degree, distributions, loadtable, sketch
    from policies.quota import requests as quota
    from policies.switching import query, switching
    from policies.vms import freezing

    ours = (advice, announcement, billing, freezing, ledger, query, quota, signals, sketch, slot, steering, switching)
    learned = (auto, forecaster, kernels, likelihood, lookahead, plain, planner, queueing, degree)
    queues = (distributions, loadtable)
    found: dict[str, Any] = {name: each for module in (*ours, *learned, *queues) for name, each in vars(module).items()}
    found |= {each.__name__: each for each in (SchedulerSettings, GraphsSettings, MetricsEntry)}
    return {_WRITTEN_AS.get(name, name): found[name] for name in found if is_dataclass(found[name])}
