"""Links and headings of a Markdown page, outside of fenced blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

FENCE = re.compile(r"^(?: {0,3})(```+|~~~+).*?^ {0,3}\1[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_CODE = re.compile(r"`[^`\n]*`")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_MARKUP = re.compile(r"\[([^\]]*)\]\([^)]*\)|[`*]")


def text_parts(page: str) -> Iterator[tuple[bool, str]]:
    """Split a page into (is it a fenced block, its text); the parts together are the page."""
    end = 0
    for block in FENCE.finditer(page):
        yield False, page[end : block.start()]
        yield True, block[0]
        end = block.end()
    yield False, page[end:]


def links(page: str) -> Iterator[str]:
    """Yield the target of each link and picture."""
    for fenced, text in text_parts(page):
        if not fenced:
            yield from (found[3] for found in _LINK.finditer(text) if not _in_code(text, found))


def replace_links(page: str, replace: Callable[[str, str], str]) -> str:
    """Return the page with each link replaced by `replace(text, target)`; pictures too, whose text begins with `!`."""

    def replaced(text: str) -> str:
        return _LINK.sub(
            lambda found: found[0] if _in_code(text, found) else found[1] + replace(found[2], found[3]), text
        )

    return "".join(text if fenced else replaced(text) for fenced, text in text_parts(page))


def _in_code(text: str, link: re.Match[str]) -> bool:
    line = text.rfind("\n", 0, link.start()) + 1
    end = text.find("\n", link.start())
    codes = _CODE.finditer(text[line : end if end >= 0 else None])
    return any(line + code.start() < link.start() < line + code.end() for code in codes)


def slug(heading: str) -> str:
    """Return the anchor that code hosts give a heading: lower case, spaces as hyphens, no punctuation.

    Example: "`storageUri` is not a URI" has the anchor `storageuri-is-not-a-uri`.
    """
    plain = _MARKUP.sub(lambda found: found[1] or "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(page: str) -> list[str]:
    """Return the anchors of a page's headings in order. A repeated one gets `-1`, `-2` and so on."""
    seen: dict[str, int] = {}
    made = []
    for fenced, text in text_parts(page):
        for heading in [] if fenced else _HEADING.findall(text):
            name = slug(heading)
            made.append(f"{name}-{seen[name]}" if name in seen else name)
            seen[name] = seen.get(name, 0) + 1
    return made


def slugify(text: str, separator: str) -> str:
    """Return the anchor of a heading as Python-Markdown's extension `toc` calls for it: that of code hosts."""
    del separator
    return slug(text)


def slugifier() -> Callable[[str, str], str]:
    """Return `slugify`: Zensical's configuration names a function that returns the function."""
    return slugify
