"""The token bucket, and the byte budget that requests share."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from eventing.errors import TryLater
from eventing.limits import SMALL, ByteBudget, TokenBucket, decoded_size


def test_as_many_pass_at_once_as_come_in_a_second_and_then_they_wait() -> None:
    bucket = TokenBucket(10)

    assert [bucket.take(0.0) for _ in range(10)] == [0.0] * 10
    assert bucket.take(0.0) == 0.1
    assert bucket.take(0.1) == 0.0


def test_over_ten_seconds_the_rate_holds() -> None:
    bucket = TokenBucket(10)

    passed = sum(bucket.take(tick / 1000) == 0.0 for tick in range(10_000))

    assert 109 <= passed <= 110


def test_more_than_it_holds_pass_when_it_is_full_and_are_paid_back() -> None:
    bucket = TokenBucket(10)

    assert bucket.take(0.0, 30) == 0.0
    assert bucket.take(2.0) > 0
    assert bucket.take(2.1) == 0.0


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(1)

    assert bucket.take(100.0) == 0.0
    assert bucket.take(50.0) == 1.0


def test_what_one_peer_holds_leaves_half_of_the_room_to_others() -> None:
    budget = ByteBudget(100 * SMALL)
    for _ in range(50):
        budget.reserve(SMALL, "10.0.0.1")

    with pytest.raises(TryLater):
        budget.reserve(1, "10.0.0.1")
    budget.reserve(SMALL, "10.0.0.2")
    budget.release(SMALL, "10.0.0.1")
    budget.reserve(SMALL, "10.0.0.1")


def test_large_requests_leave_a_quarter_of_the_room_to_small_ones() -> None:
    budget = ByteBudget(100 * SMALL)
    for peer in ("a", "b", "c"):
        for piece in range(25):
            budget.reserve(SMALL, peer, piece * SMALL)

    with pytest.raises(TryLater):
        budget.reserve(1, "d", SMALL)
    for _ in range(25):
        budget.reserve(SMALL, "d")
    with pytest.raises(TryLater):
        budget.reserve(1, "e")
    assert budget.used == 100 * SMALL


def test_what_is_lent_is_given_back_whatever_happens() -> None:
    budget = ByteBudget(10)

    with pytest.raises(ZeroDivisionError), budget.reserved(10):
        assert budget.used == 10
        raise ZeroDivisionError
    with pytest.raises(TryLater), budget.reserved(11):
        raise AssertionError

    assert budget.used == 0


@pytest.mark.parametrize("repeat", [200, 20_000])
@pytest.mark.parametrize("item", ["{}", "[]", '{"a":1}', '{"%d":1}', "0.5", '"%d"', "[[[[0]]]]", '[{"%d":[0]}]'])
def test_what_is_decoded_takes_no_more_memory_than_it_is_counted_for(item: str, repeat: int) -> None:
    items = [item % number if "%" in item else item for number in range(repeat)]
    names = [f'"{number}":{one}' for number, one in enumerate(items)]

    for body in (f"[{','.join(items)}]".encode(), ("{" + ",".join(names) + "}").encode()):
        tracemalloc.start()
        try:
            value = msgspec.json.decode(body)
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(value) == repeat
        assert taken <= decoded_size(body)
