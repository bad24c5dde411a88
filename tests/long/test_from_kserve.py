"""Type every command of docs/from-kserve.md, in order, into one shell with a platform of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import type_page

PAGE = Path(__file__).parents[2] / "docs" / "from-kserve.md"
WEB = "9000"
"""The port of the page's own server."""


@pytest.mark.timeout(600)
def test_every_command_of_the_page_works_as_it_stands_there(tmp_path: Path) -> None:
    type_page(PAGE, tmp_path, WEB)
