"""Faults of the built site: dead links and anchors, assets of other hosts, pages that no navigation leads to."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_LOADING: Final = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "video": "src"}
"""Attributes whose address a browser loads with the page."""
_NOT_LOADED: Final = {"canonical", "next", "prev", "alternate", "author", "license"}
"""Relations of `link` whose address no browser loads."""


class Page(HTMLParser):
    """The ids of a built page, the addresses that it links to, and those that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect one tag."""
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.add(given["href"])
        address = given.get(_LOADING.get(tag, ""), "")
        if address and not set(given.get("rel", "").split()) & _NOT_LOADED:
            self.loaded.add(address)


def find_faults(site: Path) -> list[str]:
    """Return a line for each fault of the site in this folder."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    return [fault for path, page in pages.items() for fault in _faults_of(path, page, pages, site)]


def _faults_of(path: Path, page: Page, pages: dict[Path, Page], site: Path) -> Iterator[str]:
    shown = path.relative_to(site)
    for address in sorted(page.loaded):
        if urlsplit(address).netloc:
            yield f"{shown}: loads {address} from another host"
    if path.name == "404.html":  # its addresses are absolute: a server shows it for any path
        return
    for address in sorted(page.links | page.loaded):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or address == "javascript:void(0)":
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if target.is_dir():
            target /= "index.html"
        if not target.exists():
            yield f"{shown}: {address} does not exist"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
            yield f"{shown}: {address} names an anchor that does not exist"
