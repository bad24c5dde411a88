"""SECURITY.md names tests for each of its points, and they are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()
POINTS = dict(re.findall(r"^\| (\d+) [^|]+\|.*\| ([^|]+) \|$", TEXT, re.MULTILINE))


def test_each_point_has_a_row() -> None:
    assert [int(number) for number in POINTS] == list(range(1, 18))


@pytest.mark.parametrize("number", POINTS)
def test_a_point_names_tests(number: str) -> None:
    assert "`tests/" in POINTS[number]


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:tests|manifests|requirements)/[^`*]+)`", TEXT))))
def test_what_is_named_is_there(path: str) -> None:
    assert (ROOT / path).exists()
