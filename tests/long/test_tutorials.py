"""Type every command of docs/tutorials and docs/ray.md into one shell for each page, with a platform of its own.

The tutorial of Kubernetes runs in `tests/cluster/test_readme.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import type_page

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
EXAMPLES = Path(__file__).parents[2] / "examples"
ON_A_CLUSTER = ("kubernetes",)
RAY_STARTS_WITHIN = 600.0  # s, on busy cores
PAGES = sorted(page.stem for page in TUTORIALS.glob("*.md") if page.stem not in ON_A_CLUSTER)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_tutorial_works_as_it_stands_there(page: str, tmp_path: Path) -> None:
    type_page(TUTORIALS / f"{page}.md", tmp_path)


@pytest.mark.timeout(900)
def test_every_command_of_the_page_about_ray_works_as_it_stands_there(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    type_page(TUTORIALS.parent / "ray.md", tmp_path, "9000", within=RAY_STARTS_WITHIN)
