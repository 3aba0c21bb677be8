"""Puts modules of the live page into one script, so that a page works from a file, without a server.

Each module becomes a function, and each import a look at what an earlier function has returned. That is enough for
modules that import names in braces and export declarations, as ours do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_IMPORT: Final = re.compile(r'^import (\{[^}]*\}) from "\./([\w.]+)";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LEFT: Final = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


class BundleSourceError(Exception):
    """A module cannot be put into the script: a mistake in our own files."""


def bundled(name: str, read: Callable[[str], str]) -> str:
    """Return a module, with all that it imports, as one script.

    Args:
        name: of the module.
        read: returns a module's text.

    Raises:
        BundleSourceError: an import or an export has another form, or modules import each other in a circle.
    """
    parts: dict[str, str] = {}
    _add(name, read, parts, ())
    return '"use strict";\nconst modules = {};\n' + "\n".join(parts.values())


def _add(name: str, read: Callable[[str], str], parts: dict[str, str], above: tuple[str, ...]) -> None:
    if name in above:
        raise BundleSourceError(f"{' imports '.join((*above, name))}")
    if name in parts:
        return
    text = read(name)
    for _, wanted in _IMPORT.findall(text):
        _add(wanted, read, parts, (*above, name))
    given = [declared for _, declared in _EXPORT.findall(text)]
    code = _EXPORT.sub(r"\1", _IMPORT.sub(r'const \1 = modules["\2"];', text))
    if left := _LEFT.search(code):
        raise BundleSourceError(f"{name}: {left[0]}")
    parts[name] = f'modules["{name}"] = (() => {{\n{code}\nreturn {{ {", ".join(given)} }};\n}})();'
