"""When a Model that was refused something is looked at again."""

from __future__ import annotations

from clusters.base.objects import Key
from serving.reconciler.backoff import FIRST_LOOK, LAST_LOOK, Patience

KEY, OTHER = Key("n", "m"), Key("n", "o")


def test_the_first_look_comes_soon_and_the_later_ones_at_growing_intervals_up_to_a_bound() -> None:
    patience = Patience()

    looks = [patience.look_again(KEY) for _ in range(8)]

    assert looks[:3] == [FIRST_LOOK, 2 * FIRST_LOOK, 4 * FIRST_LOOK]
    assert looks == sorted(looks)
    assert looks[-1] == LAST_LOOK


def test_what_is_no_longer_refused_begins_anew_and_others_are_not_concerned() -> None:
    patience = Patience()
    for _ in range(5):
        patience.look_again(KEY)

    patience.forget(KEY)

    assert patience.look_again(KEY) == FIRST_LOOK
    assert patience.look_again(OTHER) == FIRST_LOOK
