"""The user's code: where it is, its hash, and how it is loaded. Works without Spark, except for `load`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import os
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from engines.query.sqltext import ddl_tokens, sql_tokens
from infra.messages import APPEND, OpenQuery

_OWN_PACKAGE = "engines"
_MAX_FILES = 2_000
_user_folders: set[Path] = set()
_loading = threading.Lock()
"""Held while a module is loaded: another thread that loads one unloads all of them first."""


class CodeError(Exception):
    """The user's code is missing, differs from the gateway's, or is not a function."""


def query_hash(query: OpenQuery) -> str:
    """Return the hash of a query's definition: SQL or function, code, schema, event time, streams, output, tables.

    Of a table its declaration counts: neither its content nor where its files are. If it is divided, the key and the
    number of parts count, too: all parts have the same hash.

    The layout of SQL and schema does not count; see ``engines.query.sqltext``.

    Raises:
        CodeError: the function's module cannot be found.
    """
    sql, schema = "\0".join(sql_tokens(query.sql)), "\0".join(ddl_tokens(query.schema_ddl))
    return _hash_of(query, (sql, query.function, schema, *_of_tables(query)))


def former_hash(query: OpenQuery) -> str:
    """Return the hash as earlier versions stored it with state: over the exact texts.

    Raises:
        CodeError: the function's module cannot be found.
    """
    return _hash_of(query, (query.sql, query.function, query.schema_ddl, *_of_tables(query)))


def _of_tables(query: OpenQuery) -> Iterator[str]:
    for table in sorted(query.tables, key=lambda table: table.name):
        schema = "\0".join(ddl_tokens(table.schema_ddl))
        yield "\0".join((table.name, table.format, str(table.header), schema))


def _hash_of(query: OpenQuery, texts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for part in texts:
        _add(digest, part.encode())
    if (event_time := query.event_time) is not None:
        # Without one the hash is that of earlier versions, whose state stays valid.
        _add(digest, f"event_time {event_time.lateness_ms} {event_time.column}".encode())
    for stream in query.streams:
        _add(digest, b"stream" + msgspec.json.encode(stream))
    if query.part is not None:
        _add(digest, f"part of {query.part.parts} {query.part.key}".encode())
    if query.selections is not None:
        _add(digest, b"selections" + msgspec.json.encode(query.selections))
    if query.output != APPEND:
        _add(digest, "\0".join(("output", query.output.mode, *query.output.key)).encode())
    if query.function:
        for name, path in sources(_module_of(query.function), query.code_path):
            _add(digest, name.encode())
            _add(digest, path.read_bytes())
    return digest.hexdigest()


def check(query: OpenQuery) -> str:
    """Return the hash of a query.

    Raises:
        CodeError: not exactly one of SQL and function is given, or the code differs from the gateway's.
    """
    if bool(query.sql) == bool(query.function):
        raise CodeError(f"query {query.query}: give either sql or function")
    mine = query_hash(query)
    if query.code_hash and mine != query.code_hash:
        where = f" below {query.code_path}" if query.code_path else ""
        raise CodeError(
            f"query {query.query}: this host has other code{where} (sha256 {mine[:12]}, the gateway's is "
            f"{query.code_hash[:12]}); copy the same files to both places"
        )
    return mine


def load(query: OpenQuery) -> Callable[[Any], Any]:
    """Import a query's function; its modules are sent to executors with it.

    Raises:
        CodeError: it cannot be imported, or is not a function.
    """
    with _loading:  # a host opens several queries at a time
        return _load(query)


def _load(query: OpenQuery) -> Callable[[Any], Any]:
    from pyspark import cloudpickle

    module_name, function_name = _split(query.function)
    folder = Path(query.code_path).resolve() if query.code_path else None
    if folder is not None:
        _use_folder(folder)
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise CodeError(
            f"query {query.query}: importing {module_name} failed: {type(error).__name__}: {error}"
        ) from error
    if folder is not None and (module_name, module) not in _modules_below([folder]):
        raise CodeError(
            f"query {query.query}: {module_name} came from {module.__file__}, not from {folder}; "
            "give the module another name"
        )
    function = getattr(module, function_name, None)
    if not callable(function):
        raise CodeError(f"query {query.query}: {module_name} has no function {function_name}")
    # Executors may run on machines without the user's folder and without this project.
    for each in _modules_with(module, folder):
        cloudpickle.register_pickle_by_value(each)  # type: ignore[no-untyped-call]
    return function  # type: ignore[no-any-return]


def sources(module: str, code_path: str) -> Iterator[tuple[str, Path]]:
    """Yield the sources that make up a module: its own file, or all files of the package it is in, by name."""
    path = ([code_path] if code_path else []) + sys.path
    top = module.split(".")[0]
    spec = importlib.machinery.PathFinder.find_spec(top, path)
    if spec is None:
        raise CodeError(f"module {module} is not in {code_path or 'the module path'}")
    if not spec.submodule_search_locations:
        if spec.origin is None:
            raise CodeError(f"module {module} has no source file")
        yield top, Path(spec.origin)
        return
    folder = Path(next(iter(spec.submodule_search_locations)))
    if top == _OWN_PACKAGE:
        # Spillway's own queries are hashed by their package only: a new version of the rest leaves old state valid.
        folder = folder.joinpath(*module.split(".")[1:-1])
    files = sorted(folder.rglob("*.py"))
    if len(files) > _MAX_FILES:
        raise CodeError(f"package {folder} has {len(files)} source files; at most {_MAX_FILES} are hashed")
    for file in files:
        yield file.relative_to(folder.parent).as_posix(), file


def _use_folder(folder: Path) -> None:
    """Put a user's folder first on the module path, and unload the modules that came from users' folders.

    An earlier query may have loaded older contents of the same files, or a module of the same name from elsewhere.
    """
    _user_folders.add(folder)
    for name, _ in _modules_below(_user_folders):
        if name != "__main__":
            del sys.modules[name]
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))


def _modules_with(module: types.ModuleType, folder: Path | None) -> list[types.ModuleType]:
    """Return what goes to executors with a module: the modules in the user's folder, or those of a query of ours."""
    if folder is None and module.__name__.startswith(f"{_OWN_PACKAGE}."):
        folder = Path(str(module.__file__)).resolve().parent
    return [module] if folder is None else [each for _, each in _modules_below([folder])]


def _modules_below(folders: Collection[Path]) -> list[tuple[str, types.ModuleType]]:
    """Return the modules that were loaded from files below any of these folders, by name."""
    found = []
    # Links are followed once for each folder: a process has thousands of modules.
    below: dict[str, bool] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None:
            continue
        parent = file.rpartition(os.sep)[0]
        if parent not in below:
            real = Path(parent).resolve()
            below[parent] = any(real.is_relative_to(folder) for folder in folders)
        if below[parent]:
            found.append((name, module))
    return found


def _add(digest: Any, part: bytes) -> None:
    digest.update(len(part).to_bytes(8, "big"))
    digest.update(part)


def _module_of(function: str) -> str:
    return _split(function)[0]


def _split(function: str) -> tuple[str, str]:
    module, colon, name = function.partition(":")
    if not (colon and module and name.isidentifier()):
        raise CodeError(f"function {function!r}: write it as package.module:name")
    return module, name
