"""Type every command of docs/tutorials into one shell for each page, with a platform of its own.

The tutorial of Kubernetes runs in `tests/cluster/test_tutorial.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import type_page

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
ON_A_CLUSTER = ("kubernetes",)
PAGES = sorted(page.stem for page in TUTORIALS.glob("*.md") if page.stem not in ON_A_CLUSTER)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_tutorial_works_as_it_stands_there(page: str, tmp_path: Path) -> None:
    type_page(TUTORIALS / f"{page}.md", tmp_path)
