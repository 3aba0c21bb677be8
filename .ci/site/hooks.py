"""What mkdocs cannot do by itself: pages from outside docs/, and links to files that are no pages.

A link to a file of the repository that is no page becomes its text with the file's path. If the file is missing, the
build fails.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BESIDE = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
# Pages of other branches that are in the navigation already; each appears once it is there.
TO_COME = {"commands.md"}
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Leave out of the navigation the pages that are still to come."""
    config.nav = [_present(part) for part in config.nav]
    return config


def _present(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    return {name: [entry for entry in below if _is_there(entry)] for name, below in part.items()}


def _is_there(entry: Any) -> bool:
    target = next(iter(entry.values())) if isinstance(entry, dict) else entry
    return target not in TO_COME or (DOCS / target).is_file()


def on_files(files: Files, config: Any) -> Files:
    """Add the documents that are at the top of the repository."""
    for name, page in BESIDE.items():
        text = LINK.sub(lambda match: _link(match, ROOT), (ROOT / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace links to files that are no pages."""
    if page.file.generated_by is not None:
        return markdown
    folder = Path(page.file.abs_src_path).parent
    return LINK.sub(lambda match: _link(match, folder), markdown)


def _link(match: re.Match[str], folder: Path) -> str:
    """Return a link of a document in ``folder`` as the site has it."""
    path = (folder / match["target"]).resolve()
    if not path.exists():
        raise PluginError(f"{folder}: the link {match[0]} leads nowhere")
    name = path.relative_to(ROOT).as_posix()
    if path.is_relative_to(DOCS):
        if path.is_dir():
            return f"{match['text']} (`{name}`)"
        return match[0] if folder != ROOT else f"[{match['text']}]({name.removeprefix('docs/')}{match['anchor'] or ''})"
    if name in BESIDE:
        up = "" if folder == ROOT else "../" * len(folder.relative_to(DOCS).parts)
        return f"[{match['text']}]({up}{BESIDE[name]}{match['anchor'] or ''})"
    return f"{match['text']} (`{name}`)" if match["text"].strip("`") != name else f"`{name}`"
