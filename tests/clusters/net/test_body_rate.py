"""The minimum rate of a body, by a timeline of checks one second apart."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clusters.net.server.limits import BodyRate, ConnectionLimits

LIMITS = ConnectionLimits(body_check=1.0, body_rate=100, body_time=60.0)
RESTS = -1
"""Replaces a size in a timeline: the server had paused reading."""


def looks(sizes: Sequence[int]) -> int:
    """Return the number of checks that a body passes, given its size at each check."""
    pace, last = BodyRate(LIMITS), 0
    for number, size in enumerate(sizes):
        if size == RESTS:
            pace.skip(last)
        elif not pace.is_enough(last := size):
            return number
    return len(sizes)


@pytest.mark.parametrize(
    ("sizes", "enough"),
    [
        ([0], 0),
        ([1, 1], 1),
        ([1, 101, 201, 301], 4),
        ([100, 200, 250, 275, 276], 3),
        ([50] * 5, 1),
        ([1_000_000] * 10, 2),
        ([1_000_000, 1_000_000, 1_000_200, 1_000_300, 1_000_400], 5),
        ([10, *[RESTS] * 10, 10, 110, 210], 11),
        ([50, *[RESTS] * 10, 51, 160, 260], 14),
    ],
    ids=[
        "nothing came",
        "a byte came",
        "as fast as it has to be",
        "slower and slower",
        "it stopped",
        "a quick start and silence",
        "a quick start and a pause",
        "rest is no excuse for who does not go on",
        "rest costs nothing",
    ],
)
def test_a_body_has_to_go_on_coming(sizes: Sequence[int], enough: int) -> None:
    assert looks(sizes) == enough


def test_a_body_that_comes_as_slowly_as_it_may_has_an_end() -> None:
    assert looks([100 * number for number in range(1, 200)]) == 59
