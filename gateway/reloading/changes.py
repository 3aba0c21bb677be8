"""What differs between the config of a running gateway and a new one, and what each difference takes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import BaseModel

from gateway.config.models import Config, QuerySourceConfig

Key: TypeAlias = tuple[str, ...]

_THRESHOLDS: Final = ("share", "start_vm_above", "send_above", "keep_vm_above", "keep_vm_bytes", "tolerance", "dry_run")
IN_PLACE: Final[tuple[Key, ...]] = (
    ("qos",),
    ("policy",),
    ("announced",),
    ("on_failure",),
    *(("switching", name) for name in _THRESHOLDS),
)
"""The keys of a query that change while it goes on. For any other key it is opened again."""
OF_THE_CLOUD: Final[tuple[Key, ...]] = (("cloud", "max_vms"), ("cloud", "budget"), ("cloud", "freeze"))
"""The keys outside of queries that change while the gateway runs. Any other key needs a restart."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a new config changes.

    Attributes:
        restart: keys that cannot change while the gateway runs.
        cloud: keys of the cloud's limits.
        added: queries that are new.
        removed: queries that are gone.
        reopened: queries that are opened again, with the keys that changed; none if only the code of its function did.
        in_place: queries that go on with other settings, with the keys that changed.
    """

    restart: tuple[str, ...]
    cloud: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    reopened: dict[str, tuple[str, ...]]
    in_place: dict[str, tuple[str, ...]]

    def __bool__(self) -> bool:
        """Whether anything changes."""
        parts = (self.restart, self.cloud, self.added, self.removed, self.reopened, self.in_place)
        return any(map(bool, parts))

    @property
    def opened(self) -> tuple[str, ...]:
        """Return the queries that are opened with the new config."""
        return (*self.added, *self.reopened)

    @property
    def stopped(self) -> tuple[str, ...]:
        """Return the queries that are stopped first."""
        return (*self.removed, *self.reopened)

    def text(self) -> str:
        """Return the changes in words."""
        reopened = (f"{name} ({', '.join(keys) or 'its code'})" for name, keys in self.reopened.items())
        in_place = (f"{name} ({', '.join(keys)})" for name, keys in self.in_place.items())
        said = (
            ("added", self.added),
            ("removed", self.removed),
            ("opened again", tuple(reopened)),
            ("changed in place", (*in_place, *self.cloud)),
        )
        return "; ".join(f"{word}: {', '.join(names)}" for word, names in said if names) or "nothing has changed"


def changes(old: Config, new: Config, new_code: Collection[str] = ()) -> Changes:
    """Return what a new config changes.

    Args:
        old: of the running gateway.
        new: the other one.
        new_code: queries whose function has other code than when they were opened.
    """
    outside = [key for key in _differences(old, new) if key[0] != "queries"]
    cloud = [key for key in outside if key[:2] in OF_THE_CLOUD]
    reopened, in_place = dict[str, tuple[str, ...]](), dict[str, tuple[str, ...]]()
    for name in old.queries.keys() & new.queries.keys():
        found = list(_differences(old.queries[name], new.queries[name]))
        said = tuple(sorted({".".join(key) for key in found}))
        if name in new_code or not all(_is_in(key, IN_PLACE) for key in found):
            reopened[name] = said
        elif found:
            in_place[name] = said
    added = tuple(name for name in new.queries if name not in old.queries)
    removed = tuple(name for name in old.queries if name not in new.queries)
    _add_readers(new, reopened, in_place, added)
    restart = {".".join(key) for key in outside if key not in cloud}
    restart |= _of_hosts(new, added, removed)
    if new.cloud.warm and ("cloud", "max_vms") in cloud:
        restart.add("cloud.max_vms")  # the warm hosts were started with the gateway
    return Changes(
        tuple(sorted(restart)), tuple(sorted({".".join(key) for key in cloud})), added, removed, reopened, in_place
    )


def _of_hosts(new: Config, added: Collection[str], removed: Collection[str]) -> set[str]:
    """Return the queries that cannot come or go, because each has an engine host of its own."""
    return {f"queries.{name}" for name in (*added, *removed)} if new.private.host == "own" else set()


def _add_readers(
    new: Config, reopened: dict[str, tuple[str, ...]], in_place: dict[str, tuple[str, ...]], added: Collection[str]
) -> None:
    """Let queries that read the results of one that is opened again be opened again, too."""
    for name in new.upstream_first:
        sources = [source.name for source in new.queries[name].inputs.values() if isinstance(source, QuerySourceConfig)]
        if name not in added and name not in reopened and any(source in reopened for source in sources):
            reopened[name] = (*in_place.pop(name, ()), "the query that it reads")


def _is_in(key: Key, keys: Collection[Key]) -> bool:
    return any(key[: len(each)] == each for each in keys)


def _differences(old: BaseModel, new: BaseModel) -> Iterator[Key]:
    """Yield the keys, as in the YAML file, whose values differ."""
    for name, field in type(old).model_fields.items():
        for rest in _of_values(getattr(old, name), getattr(new, name)):
            yield (field.alias or name, *rest)


def _of_values(old: Any, new: Any) -> Iterator[Key]:
    if isinstance(old, BaseModel) and type(old) is type(new):
        yield from _differences(old, new)
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            if key not in old or key not in new:
                yield (str(key),)
            else:
                yield from ((str(key), *rest) for rest in _of_values(old[key], new[key]))
    elif old != new:
        yield ()
