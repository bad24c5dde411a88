"""Write what Zensical builds the site from: pages, pictures, generated pages, its configuration with the navigation."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.docsite.commands import FOLDER, command_pages
from tests.docsite.navigation import Section, read_sections
from tests.docsite.pictures import replace_pictures
from tests.docsite.python_api import PATH, python_api_page
from tests.docsite.sources import DOCS, ROOT, Sources, find_sources, site_page

PAGES, SITE, CONFIGURATION = "site-pages", "site", "zensical.toml"
"""Names in the folder of the build."""
ASSETS = Path(__file__).parent / "assets"
BASE = Path(__file__).with_name(CONFIGURATION)
GENERATED = {"Reference": {"Command": FOLDER, "Python API": PATH}}
"""Generated pages, and folders of them, by the section of the navigation that they complete."""


def prepare(folder: Path, root: Path = ROOT) -> None:
    """Write the pages and the configuration. Leave files alone that are up to date, for a server that watches them."""
    pages = folder / PAGES
    sources = find_sources(root)
    made: dict[str, str] = {}
    for source, place in sources.pages.items():
        made[place] = _with_pictures(made, place, site_page(source, _read(root / source), sources))
    made |= {place: _read(root / source) for source, place in sources.files.items()}
    generated = {**command_pages(), PATH: python_api_page()}
    made |= generated
    made |= {f"assets/{asset.name}": _read(asset) for asset in ASSETS.iterdir()}
    for place, text in made.items():
        _write(pages / place, text)
    for path in pages.rglob("*"):
        if path.is_file() and path.relative_to(pages).as_posix() not in made:
            path.unlink()
    sections = read_sections(_read(root / DOCS / "README.md"))
    _write(folder / CONFIGURATION, configuration(sections, sources, generated))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _write(path: Path, text: str) -> None:
    if not path.exists() or _read(path) != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _with_pictures(made: dict[str, str], place: str, text: str) -> str:
    """Return the text of a page with pictures, which are added to `made`."""

    def save(picture: str) -> str:
        name = f"assets/pictures/{hashlib.sha256(picture.encode()).hexdigest()[:16]}.svg"
        made[name] = picture
        return posixpath.relpath(name, posixpath.dirname(place) or ".")

    return replace_pictures(text, save)


def configuration(sections: Iterable[Section], sources: Sources, generated: Iterable[str]) -> str:
    """Return Zensical's configuration with the navigation."""
    navigation: list[Any] = [{"Documentation": "index.md"}]
    for section in sections:
        entries: list[Any] = []
        for entry in section.entries:
            place = sources.pages[posixpath.normpath(posixpath.join(DOCS, entry.target))]
            beside = [*_beside(place, sources)] if place.endswith("designs/index.md") else []
            entries.append({entry.title: [place, *beside] if beside else place})
        for title, place in GENERATED.get(section.title, {}).items():
            listed = sorted(page for page in generated if page.startswith(f"{place}/"))
            entries.append({title: listed or place})
        navigation.append({section.title: entries})
    # Arrays and strings of JSON are TOML too; tables are not: `{"a" = "b"}`.
    shown = json.dumps(navigation, ensure_ascii=False).replace('": ', '" = ')
    folders = f'docs_dir = "{PAGES}"\nsite_dir = "{SITE}"\nnav = {shown}\n'
    return BASE.read_text(encoding="utf-8").replace("[project]\n", f"[project]\n{folders}", 1)


def _beside(place: str, sources: Sources) -> list[str]:
    folder = posixpath.dirname(place)
    return sorted(page for page in sources.pages.values() if posixpath.dirname(page) == folder and page != place)
