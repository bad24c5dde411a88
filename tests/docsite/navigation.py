"""The navigation of the site, which `docs/README.md` declares: a section for each heading, a page for each link."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)\s]+)\)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """A page with its title. `target` is its link in `docs/README.md`."""

    title: str
    target: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the navigation."""

    title: str
    entries: tuple[Entry, ...]


def read_sections(page: str) -> list[Section]:
    """Return the sections of `docs/README.md` in order. Raises ValueError for a section without pages."""
    parts = _SECTION.split(page)[1:]
    found = [
        Section(title, tuple(Entry(*entry) for entry in _ENTRY.findall(body)))
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    ]
    empty = [section.title for section in found if not section.entries]
    if empty:
        raise ValueError(f"docs/README.md: no pages under {', '.join(empty)}: list them as `- [Title](page.md): …`")
    return found
