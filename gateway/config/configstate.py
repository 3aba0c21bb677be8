"""Which config a state_dir belongs to, so that another config does not take it over by mistake."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.config.models import Config
from infra.statefiles import StateError, owned, write_atomically

_LOG = logging.getLogger(__name__)
CLAIM_NAME: Final = "config.json"
# The keys that identify a source or a sink.
_PLACE: Final = (
    *("type", "path", "name", "brokers", "topics", "topic", "host", "listen", "url"),
    *("endpoint", "bucket", "prefix"),
)


class Places(msgspec.Struct, frozen=True):
    """The source and the sink of a query."""

    source: str
    sink: str


class ConfigOf(msgspec.Struct, frozen=True):
    """The config file that last used a state_dir, and the queries of all configs that ever did."""

    file: str
    queries: dict[str, Places]


def why_not_this_config(config: Config) -> str:
    """Return why the config's state_dir belongs to another config, and what to do; empty if it may be used. Blocks.

    A file that was edited, moved or renamed is the same config. So is a copy of it whose queries read or write the same
    places.

    Raises:
        StateError: the record cannot be read.
    """
    found = _read(config)
    if found is None or config.file is None or found.file == str(config.file) or not Path(found.file).exists():
        return ""
    state_dir = config.gateway.state_dir
    claim = state_dir / CLAIM_NAME
    remedy = f"set another state_dir; or, to replace that config by this one, remove {claim} first"
    shared = [name for name in config.queries if name in found.queries]
    if not shared:
        return f"{state_dir} holds the state of {found.file}, which has none of these queries: {remedy}"
    for name in shared:
        old, new = found.queries[name], _places(config, name)
        if old.source != new.source and old.sink != new.sink:
            what = f"reads {old.source} and writes {old.sink}, and here it reads {new.source} and writes {new.sink}"
            return f"{state_dir} holds the state of {found.file}, whose query {name} {what}: {remedy}"
    return ""


@contextmanager
def owned_by(config: Config) -> Iterator[None]:
    """Lock the config's state_dir for one gateway, and record the config. Blocks.

    Raises:
        StateError: another gateway holds it, or it belongs to another config or another version.
        OSError: the disk fails.
    """
    with owned(config.gateway.state_dir):
        _claim(config)
        yield


def _claim(config: Config) -> None:
    if why := why_not_this_config(config):
        raise StateError(why)
    if config.file is None:
        return
    found = _read(config)
    if found is not None and found.file != str(config.file):
        _LOG.warning(
            "%s was used with the config %s, and is now used with %s", config.gateway.state_dir, found.file, config.file
        )
    queries = {**({} if found is None else found.queries), **{name: _places(config, name) for name in config.queries}}
    kept = {name: places for name, places in queries.items() if name in config.queries or _has_state(config, name)}
    write_atomically(config.gateway.state_dir / CLAIM_NAME, msgspec.json.encode(ConfigOf(str(config.file), kept)))


def _read(config: Config) -> ConfigOf | None:
    path = config.gateway.state_dir / CLAIM_NAME
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=ConfigOf)
    except msgspec.DecodeError as error:
        raise StateError(f"{path} cannot be read ({error}): remove it if the state is this config's") from error


def _has_state(config: Config, name: str) -> bool:
    return (config.gateway.state_dir / "queries" / name).is_dir()


def _places(config: Config, name: str) -> Places:
    query = config.queries[name]
    sources = [f"{stream} {_place(source)}".strip() for stream, source in query.inputs.items()]
    return Places(", ".join(sources), _place(query.sink))


def _place(section: Any) -> str:
    said = ((key, getattr(section, key, None)) for key in _PLACE)
    return " ".join(_word(value) for _, value in said if value is not None)


def _word(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
