"""Pages link to anchors that exist, `docs/README.md` lists every page, and the pages of the site are complete."""

from __future__ import annotations

import posixpath
from pathlib import Path

import click
import pytest

import knodel
from serving.cli import main
from tests.docsite import markdown, pictures
from tests.docsite.check import find_faults
from tests.docsite.commands import FOLDER, command_pages
from tests.docsite.navigation import read_sections
from tests.docsite.pictures import replace_pictures, width_of
from tests.docsite.prepare import configuration
from tests.docsite.python_api import python_api_page
from tests.docsite.sources import DOCS, ROOT, Sources, find_sources, site_page, site_path

SOURCES = find_sources()
TEXTS = {source: (ROOT / source).read_text(encoding="utf-8") for source in SOURCES.pages}
SECTIONS = read_sections(TEXTS["docs/README.md"])


def test_links_name_anchors_that_exist() -> None:
    anchors = {source: set(markdown.anchors(text)) for source, text in TEXTS.items()}
    dead = []
    for source, text in TEXTS.items():
        for link in markdown.links(text):
            path, _, anchor = link.partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source
            if anchor and "://" not in link and anchor not in anchors.get(target, {anchor}):
                dead.append(f"{source}: {link}")
    assert not dead


def test_the_list_of_pages_has_every_page() -> None:
    listed = {posixpath.normpath(posixpath.join(DOCS, entry.target)) for part in SECTIONS for entry in part.entries}
    designs = {source for source in SOURCES.pages if source.startswith("docs/designs/0")}
    followed = {"docs/README.md", "tests/testbed/README.md"}
    assert set(SOURCES.pages) - listed - designs - followed == set()


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("docs/scaling.md", "scaling.md"),
        ("docs/README.md", "index.md"),
        ("docs/designs/README.md", "designs/index.md"),
        ("README.md", "project/readme.md"),
        ("SECURITY.md", "project/SECURITY.md"),
        ("manifests/README.md", "project/manifests/index.md"),
    ],
)
def test_a_page_has_one_path_in_the_site(source: str, path: str) -> None:
    assert site_path(source) == path


def test_links_are_those_of_the_site() -> None:
    sources = Sources({"docs/a.md": "a.md", "docs/d/README.md": "d/index.md", "X.md": "project/X.md"}, {})
    links = "[a](../a.md#b) [d](README.md) [x](../../X.md) [code](../../serving/y.py) `[no](z.md)`"
    page = f"{links}\n- a\n  - b\n```yaml m.yaml\n  - c\n```"

    links, _, rest = site_page("docs/d/README.md", page, sources).partition("\n")
    assert links == "[a](../a.md#b) [d](index.md) [x](../project/X.md) code `[no](z.md)`"
    assert rest == '- a\n    - b\n```yaml title="m.yaml"\n  - c\n```'


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Models, rollouts, events", "models-rollouts-events"),
        ("`knodel up`: the port is in use", "knodel-up-the-port-is-in-use"),
        ("`storage_uri` and [links](a.md)", "storage_uri-and-links"),
    ],
)
def test_anchors_are_those_of_code_hosts(heading: str, anchor: str) -> None:
    assert markdown.anchors(f"# Page\n\n## {heading}\n\n```text\n# no heading\n```\n") == ["page", anchor]


def test_each_verb_and_each_of_its_options_has_a_place() -> None:
    pages = command_pages()
    context = click.Context(main.knodel, info_name="knodel")
    for verb in main.VERBS:
        command = main.knodel.get_command(context, verb)
        assert command is not None
        page = pages[f"{FOLDER}/{verb}.md"]
        for option in (parameter for parameter in command.params if isinstance(parameter, click.Option)):
            assert option.hidden or option.opts[-1] in page, (verb, option.opts)


def test_each_public_name_of_the_package_has_a_heading() -> None:
    anchors = markdown.anchors(python_api_page())
    assert {name.lower() for name in knodel.__all__} <= set(anchors)
    assert "clientdeploy" in anchors
    assert "request_id: str = ''," in python_api_page()
    assert "core" not in python_api_page().partition("#### Client.deploy")[2].partition("####")[0].split("```")[1]


def test_the_navigation_has_generated_pages() -> None:
    made = configuration(SECTIONS, SOURCES, command_pages())
    assert '"Troubleshooting"' in made
    assert f'"{FOLDER}/deploy.md"' in made


def test_faults_of_a_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<h1 id="a">A</h1><a href="b.html#c">b</a><a href="d.html">d</a>')
    (tmp_path / "b.html").write_text('<script src="https://cdn.example/x.js"></script><a href="index.html#a">a</a>')

    assert find_faults(tmp_path) == [
        "b.html: loads https://cdn.example/x.js from another host",
        "index.html: b.html#c names an anchor that does not exist",
        "index.html: d.html does not exist",
    ]


def test_without_merman_pictures_stay_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "can_render", lambda: False)
    assert replace_pictures(page := "```mermaid\nflowchart LR\n```\n", str) == page


def test_a_picture_has_its_text_and_its_natural_width() -> None:
    pytest.importorskip("merman", reason="no wheel for this system")
    saved: list[str] = []

    def save(picture: str) -> str:
        saved.append(picture)
        return "a.svg"

    page = replace_pictures("A\n\n```mermaid\nflowchart LR\n  accTitle: Two parts\n  a[one] --> b[two]\n```\n", save)

    assert f'<img alt="Two parts" src="a.svg" width="{width_of(saved[0])}">' in page
    assert ">one<" in saved[0]
    assert "foreignObject" not in saved[0]
