"""Choose the models to unload for another one."""

from __future__ import annotations

import pytest

from serving.modelserver.models.room import EvictionCandidate, InsufficientMemory, choose_evictions

IDLE, BUSY = False, True


def loaded(*models: tuple[str, int, bool, float]) -> list[EvictionCandidate]:
    return [EvictionCandidate(*model) for model in models]


@pytest.mark.parametrize(
    ("needed", "kept", "others", "chosen"),
    [
        (5, 0, [], []),
        (10, 0, [], []),
        (5, 0, [("a", 5, IDLE, 1.0)], []),
        (6, 0, [("a", 5, IDLE, 1.0)], ["a"]),
        (5, 0, [("a", 5, IDLE, 2.0), ("b", 5, IDLE, 1.0)], ["b"]),
        (5, 0, [("a", 2, IDLE, 1.0), ("b", 2, IDLE, 2.0), ("c", 6, IDLE, 3.0)], ["a", "b", "c"]),
        (5, 0, [("a", 2, IDLE, 1.0), ("b", 6, IDLE, 2.0), ("c", 1, IDLE, 3.0)], ["a", "b"]),
        (5, 0, [("a", 5, BUSY, 1.0), ("b", 5, IDLE, 2.0)], ["b"]),
        (8, 0, [("a", 5, BUSY, 1.0), ("b", 5, IDLE, 2.0)], ["b", "a"]),
        (8, 0, [("a", 5, BUSY, 2.0), ("b", 5, BUSY, 1.0)], ["b", "a"]),
        (4, 4, [("a", 2, IDLE, 1.0)], []),
        (4, 4, [("a", 3, IDLE, 1.0)], ["a"]),
        (0, 10, [("a", 1, IDLE, 1.0)], ["a"]),
    ],
)
def test_the_idle_go_first_and_the_least_recently_used_of_them(
    needed: int, kept: int, others: list[tuple[str, int, bool, float]], chosen: list[str]
) -> None:
    assert choose_evictions("m", needed, kept, loaded(*others), 10) == chosen


@pytest.mark.parametrize(
    ("needed", "kept", "words"), [(11, 0, "needs 11 bytes, "), (6, 5, "beside the 5 .*unload it first")]
)
def test_what_never_fits_is_refused_and_nobody_goes_for_it(needed: int, kept: int, words: str) -> None:
    with pytest.raises(InsufficientMemory, match=f"model 'm' .*{words}.*--memory-limit"):
        choose_evictions("m", needed, kept, loaded(("a", 1, IDLE, 1.0)), 10)
