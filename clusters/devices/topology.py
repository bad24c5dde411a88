"""Links between GPUs, and the set of GPUs that fits together best. Pure.

Pairs are scored as NVIDIA's go-gpuallocator scores them: by the closest PCIe bridge, and 100 for each NVLink.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Final

from clusters.base.errors import KnodelError

Scores = Sequence[Sequence[int]]
"""The score of each pair of devices, by their positions. Symmetric; the diagonal is not read."""

SYS, NODE, PHB, PXB, PIX, SAME_BOARD = 10, 20, 30, 40, 50, 60
"""Over the link between processors, within one NUMA node, over a host bridge, over several PCIe bridges, over one, and
on one board.
"""
NVLINK: Final = 100
MOST_COMPARED: Final = 16
"""Free devices of which all sets are compared; of more, the first 16 are compared. No known machine has more."""

_WORDS: Final = {"SYS": SYS, "NODE": NODE, "PHB": PHB, "PXB": PXB, "PIX": PIX, "PSB": SAME_BOARD, "X": 0}
_Rate = tuple[int, int]


class BadLinkError(KnodelError):
    """A link between GPUs has an unknown name."""


def score_of(link: str) -> int:
    """Return the score of a link as `nvidia-smi topo -m` names it: `SYS`, `NODE`, `PHB`, `PXB`, `PIX` or `NV4`.

    Raises BadLinkError.
    """
    count = link.removeprefix("NV")
    if count != link and count.isdecimal():
        return NVLINK * int(count)
    if link not in _WORDS:
        raise BadLinkError(f"link {link!r} is unknown: use {', '.join(_WORDS)} or NV and a number, as NV4")
    return _WORDS[link]


def slowest_link(scores: Scores, devices: Collection[int]) -> int:
    """Return the lowest score between two of these devices; 0 for a single one."""
    return _rate(scores, tuple(devices))[0]


def choose(scores: Scores, free: Collection[int], count: int) -> tuple[int, ...]:
    """Return `count` of the free devices, in order.

    The slowest link of the set is as fast as possible. Of equal sets, the one with the largest sum of scores is chosen,
    then the one that leaves the best set of the same size (two, for a single device), then the one whose rest has the
    largest sum, then the one with the lowest positions. Raises ValueError for more devices than are free, or none.

    Example:
        choose([[0, 50, 10], [50, 0, 10], [10, 10, 0]], {0, 1, 2}, 1)  # (2,): the linked pair stays together
    """
    members = sorted(set(free))[:MOST_COMPARED]
    if not 0 < count <= len(members):
        raise ValueError(f"cannot choose {count} of {len(members)} free devices")
    rated = [(_rate(scores, one), one) for one in combinations(members, count)]
    best = max(rate for rate, _ in rated)
    tied = [one for rate, one in rated if rate == best]
    if len(tied) == 1:
        return tied[0]
    next_size = max(count, 2)
    following = sorted(((_rate(scores, one), _mask(one)) for one in combinations(members, next_size)), reverse=True)

    def rest(chosen: tuple[int, ...]) -> tuple[_Rate, int]:
        taken = _mask(chosen)
        next_best = next((rate for rate, mask in following if not mask & taken), (0, 0))
        return next_best, _rate(scores, tuple(one for one in members if one not in chosen))[1]

    return max(tied, key=rest)


def _rate(scores: Scores, devices: tuple[int, ...]) -> _Rate:
    """Return the slowest link and the sum of all links."""
    links = [scores[one][other] for one, other in combinations(devices, 2)]
    return min(links, default=0), sum(links)


def _mask(devices: tuple[int, ...]) -> int:
    return sum(1 << one for one in devices)
