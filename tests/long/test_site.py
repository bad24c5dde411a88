"""The site of the documentation is built without warnings, and all of its links lead somewhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docsite.sources import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Build the site; `make docs` fails on a warning, a dead link, and an asset of another host."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "tests.docsite", "build", "--folder", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    yield folder / "site"


def test_the_site_has_pages_search_and_pictures(built: Path) -> None:
    assert (built / "reference" / "command" / "deploy.html").exists()
    assert "scale to zero" in (built / "search.json").read_text(encoding="utf-8").lower()
    page = (built / "architecture.html").read_text(encoding="utf-8")
    assert page.count('alt="flowchart picture"') == page.count("<img ") > 0


def test_code_is_shown_as_code(built: Path) -> None:
    """A block that Markdown does not recognise would be text with its fence."""
    broken = [page.name for page in built.rglob("*.html") if "```" in page.read_text(encoding="utf-8")]
    assert not broken
