"""Write what Zensical builds the site from: pages, pictures, generated pages, its configuration with the navigation."""

from __future__ import annotations

import hashlib
import json
import posixpath
import shutil
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
    """Write the pages and the configuration anew."""
    pages = folder / PAGES
    shutil.rmtree(pages, ignore_errors=True)
    sources = find_sources(root)
    for source, place in sources.pages.items():
        text = site_page(source, (root / source).read_text(encoding="utf-8"), sources)
        _write(pages, place, _with_pictures(pages, place, text))
    for source, place in sources.files.items():
        _write(pages, place, (root / source).read_text(encoding="utf-8"))
    generated = {**command_pages(), PATH: python_api_page()}
    for place, text in generated.items():
        _write(pages, place, text)
    shutil.copytree(ASSETS, pages / "assets", dirs_exist_ok=True)
    sections = read_sections((root / DOCS / "README.md").read_text(encoding="utf-8"))
    (folder / CONFIGURATION).write_text(configuration(sections, sources, generated), encoding="utf-8")


def _write(pages: Path, place: str, text: str) -> None:
    (pages / place).parent.mkdir(parents=True, exist_ok=True)
    (pages / place).write_text(text, encoding="utf-8")


def _with_pictures(pages: Path, place: str, text: str) -> str:
    def save(picture: str) -> str:
        name = f"assets/pictures/{hashlib.sha256(picture.encode()).hexdigest()[:16]}.svg"
        _write(pages, name, picture)
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
