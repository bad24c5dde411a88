"""Delays between passes over a Model that the cluster refuses."""

from __future__ import annotations

from clusters.base.objects import Key
from serving.reconciler.backoff import FIRST_DELAY, LAST_DELAY, RefusalBackoff

KEY, OTHER = Key("n", "m"), Key("n", "o")


def test_the_first_look_comes_soon_and_the_later_ones_at_growing_intervals_up_to_a_bound() -> None:
    patience = RefusalBackoff()

    looks = [patience.next_delay(KEY) for _ in range(8)]

    assert looks[:3] == [FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY]
    assert looks == sorted(looks)
    assert looks[-1] == LAST_DELAY


def test_what_is_no_longer_refused_begins_anew_and_others_are_not_concerned() -> None:
    patience = RefusalBackoff()
    for _ in range(5):
        patience.next_delay(KEY)

    patience.forget(KEY)

    assert patience.next_delay(KEY) == FIRST_DELAY
    assert patience.next_delay(OTHER) == FIRST_DELAY
