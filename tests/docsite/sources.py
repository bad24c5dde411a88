"""The pages of the site from the files of the project.

Pages of `docs/` keep their paths. Pages elsewhere that they link to (`../SECURITY.md`) get a path below `project/`.
Links between pages are rewritten, links to other files of the project become text: the site is complete without code.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docsite import markdown

ROOT = Path(__file__).parents[2]
DOCS = "docs"
ELSEWHERE = "project"
COPIED = (".ipynb", ".json")
"""Suffixes of files that are copied, so that links to them work."""

_FILE = re.compile(r"^(```\w+) ([\w./-]+)$", re.MULTILINE)
"""The first line of a block that is a file (`tests.support.guide`): the site shows its path as the title."""

_NESTED = re.compile(r"^ {2,3}(?=- )", re.MULTILINE)
"""The indent of a nested list. Code hosts take two spaces, Python-Markdown needs four."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What the site is made of: `pages` and `files` map a path of the project to a path of the site."""

    pages: Mapping[str, str]
    files: Mapping[str, str]


def find_sources(root: Path = ROOT) -> Sources:
    """Find the pages of `docs/`, and what they link to, directly or by other pages."""
    waiting = sorted(path.relative_to(root).as_posix() for path in (root / DOCS).rglob("*.md"))
    pages: dict[str, str] = {}
    files: dict[str, str] = {}
    while waiting:
        source = waiting.pop()
        if source in pages:
            continue
        pages[source] = site_path(source)
        for target in linked_files(source, (root / source).read_text(encoding="utf-8")):
            if target.endswith(".md"):
                waiting.append(target)
            elif target.endswith(COPIED):
                files[target] = site_path(target)
    return Sources(pages, files)


def linked_files(source: str, page: str) -> Iterator[str]:
    """Yield the path of each file of the project that a page links to."""
    for link in markdown.links(page):
        path = link.partition("#")[0]
        if path and "://" not in link:
            yield posixpath.normpath(posixpath.join(posixpath.dirname(source), path))


def site_path(source: str) -> str:
    """Return the path in the site. Pages named README are the first page of their folder.

    Example: `docs/designs/README.md` is `designs/index.md`, and `manifests/README.md` is `project/manifests/index.md`.
    """
    path = source.removeprefix(f"{DOCS}/") if source.startswith(f"{DOCS}/") else f"{ELSEWHERE}/{source}"
    folder, name = posixpath.split(path)
    if path == f"{ELSEWHERE}/README.md":
        return f"{ELSEWHERE}/readme.md"
    return posixpath.join(folder, "index.md") if name == "README.md" else path


def site_page(source: str, page: str, sources: Sources) -> str:
    """Return a page with its links, titles of blocks and nested lists as the site needs them."""
    here = posixpath.dirname(source)
    there = posixpath.dirname(sources.pages[source])

    def replace(text: str, target: str) -> str:
        path, mark, anchor = target.partition("#")
        if not path or "://" in target or target.startswith("mailto:"):
            return f"[{text}]({target})"
        file = posixpath.normpath(posixpath.join(here, path))
        index = posixpath.join(file, "README.md")
        found = sources.pages.get(file) or sources.pages.get(index) or sources.files.get(file)
        return f"[{text}]({posixpath.relpath(found, there or '.')}{mark}{anchor})" if found else text

    made = _FILE.sub(r'\1 title="\2"', markdown.replace_links(page, replace))
    return "".join(text if fenced else _NESTED.sub("    ", text) for fenced, text in markdown.text_parts(made))
