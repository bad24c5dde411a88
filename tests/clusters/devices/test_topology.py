"""Which GPUs are chosen: on known machines, and against a comparison of all sets by the definition."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.devices.machine import DevicesError
from clusters.devices.smi import parse_topology
from clusters.devices.topology import NVLINK, PIX, SYS, BadLinkError, Scores, choose, score_of, slowest_link

MATRICES = Path(__file__).with_name("matrices")


def read(name: str) -> list[list[int]]:
    return parse_topology((MATRICES / f"{name}.txt").read_text())


def test_the_only_linked_pair_is_chosen() -> None:
    slide = read("slide")
    assert choose(slide, range(4), 2) == (0, 1)
    assert (slowest_link(slide, (0, 1)), slowest_link(slide, (0, 3))) == (PIX, SYS)


def test_after_a_single_gpu_the_pair_is_twice_as_fast_as_in_the_default_order() -> None:
    slide = read("slide")
    single = choose(slide, range(4), 1)
    pair = choose(slide, set(range(4)) - set(single), 2)
    by_default_order = (1, 2)  # as device 0 is taken
    assert slowest_link(slide, pair) >= 2 * slowest_link(slide, by_default_order)


def test_a_single_device_does_not_break_a_pair() -> None:
    assert choose(read("slide"), range(4), 1) == (2,)
    pcie = read("pcie")
    assert choose(pcie, range(8), 1) == (0,)
    assert choose(pcie, range(1, 8), 1) == (1,)  # whose partner is taken


@pytest.mark.parametrize(
    ("machine", "free", "count", "chosen"),
    [
        ("dgx1", range(8), 2, (0, 3)),
        ("dgx1", range(8), 4, (0, 1, 2, 3)),
        ("dgx1", range(4, 8), 2, (4, 7)),
        ("dgx1", range(8), 8, tuple(range(8))),
        ("pcie", range(8), 2, (0, 1)),
        ("pcie", range(1, 8), 2, (2, 3)),
        ("pcie", range(8), 4, (0, 1, 2, 3)),
        ("nvswitch", range(8), 4, (0, 1, 2, 3)),
        ("nvswitch", (1, 5, 7), 2, (1, 5)),
    ],
)
def test_sets_on_known_machines(
    machine: str, free: range | tuple[int, ...], count: int, chosen: tuple[int, ...]
) -> None:
    assert choose(read(machine), free, count) == chosen


def test_the_first_pair_of_a_mesh_leaves_a_full_pair_to_each_following_one() -> None:
    mesh, free, links = read("dgx1"), set(range(8)), []
    for _ in range(4):
        pair = choose(mesh, free, 2)
        free -= set(pair)
        links.append(slowest_link(mesh, pair))
    assert links == [2 * NVLINK] * 4


@st.composite
def machines(draw: st.DrawFn) -> tuple[Scores, list[int], int]:
    size = draw(st.integers(1, 7))
    scores = [[0] * size for _ in range(size)]
    for one, other in combinations(range(size), 2):
        scores[one][other] = scores[other][one] = draw(st.sampled_from([SYS, PIX, NVLINK, 2 * NVLINK]))
    free = draw(st.lists(st.integers(0, size - 1), min_size=1, unique=True))
    return scores, free, draw(st.integers(1, len(free)))


def rate(scores: Scores, devices: tuple[int, ...]) -> tuple[int, int]:
    pairs = [scores[one][other] for one, other in combinations(devices, 2)]
    return min(pairs, default=0), sum(pairs)


@given(machines())
def test_the_choice_is_the_best_of_all_sets(machine: tuple[Scores, list[int], int]) -> None:
    scores, free, count = machine

    def key(chosen: tuple[int, ...]) -> tuple[object, ...]:
        rest = tuple(sorted(set(free) - set(chosen)))
        following = max((rate(scores, one) for one in combinations(rest, max(count, 2))), default=(0, 0))
        return (rate(scores, chosen), following, rate(scores, rest)[1], tuple(-one for one in chosen))

    assert choose(scores, free, count) == max(combinations(sorted(free), count), key=key)


@pytest.mark.parametrize("count", [0, 3])
def test_more_devices_than_are_free_cannot_be_chosen(count: int) -> None:
    with pytest.raises(ValueError, match=f"cannot choose {count} of 2"):
        choose(read("slide"), (0, 1), count)


def test_words_of_links_and_texts_without_a_matrix() -> None:
    assert (score_of("NV12"), score_of("SYS"), score_of("X")) == (1200, 10, 0)
    with pytest.raises(BadLinkError, match="'NVx' is unknown"):
        score_of("NVx")
    with pytest.raises(DevicesError, match="no matrix"):
        parse_topology("\tGPU0\tGPU1\nGPU0\t X \n")
