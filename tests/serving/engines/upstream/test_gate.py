"""The gate between the requests and the sleep of an engine."""

from __future__ import annotations

import threading

import pytest

from serving.engines.upstream.gate import Gate


class StepClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_requests_are_counted_and_idleness_begins_after_the_last() -> None:
    clock = StepClock()
    gate = Gate(clock)
    clock.now += 5
    assert gate.idle() == 5
    assert gate.enter()
    assert gate.enter()
    gate.leave()
    assert gate.idle() == 0
    gate.leave()
    clock.now += 2
    assert gate.idle() == 2


def test_an_engine_with_requests_does_not_fall_asleep() -> None:
    gate = Gate()
    gate.enter()
    with gate.sleeping() as free:
        assert not free
    assert not gate.asleep
    assert gate.enter()


def test_no_request_enters_while_the_engine_falls_asleep_sleeps_or_wakes() -> None:
    gate = Gate()
    with gate.sleeping() as free:
        assert free
        assert not gate.enter()
    assert gate.asleep
    assert not gate.enter()
    assert gate.idle() == 0
    with gate.waking(False) as needed:
        assert needed
        assert not gate.enter()
    assert gate.enter()


def test_only_one_thread_puts_it_to_sleep() -> None:
    gate = Gate()
    with gate.sleeping() as first, gate.sleeping() as second:
        assert (first, second) == (True, False)


def test_an_engine_that_is_awake_is_not_woken() -> None:
    gate = Gate()
    gate.enter()
    with gate.waking(False) as needed:
        assert not needed
    gate.leave()


def test_an_engine_that_sleeps_by_itself_is_woken() -> None:
    with Gate().waking(True) as needed:
        assert needed


def test_a_failed_sleep_counts_as_sleep_and_a_failed_waking_too() -> None:
    gate = Gate()
    with pytest.raises(OSError, match="no answer"), gate.sleeping():
        raise OSError("no answer")
    assert gate.asleep
    with pytest.raises(OSError, match="no answer"), gate.waking(False):
        raise OSError("no answer")
    assert not gate.enter()
    with gate.waking(False) as needed:
        assert needed
    assert gate.enter()


def test_who_wakes_waits_until_the_engine_sleeps() -> None:
    gate = Gate()
    order: list[str] = []

    def wake() -> None:
        with gate.waking(False) as needed:
            order.append(f"woken {needed}")

    with gate.sleeping():
        waker = threading.Thread(target=wake)
        waker.start()
        order.append("asleep")
    waker.join(5)
    assert order == ["asleep", "woken True"]
    assert gate.enter()


def test_a_restarted_engine_is_awake() -> None:
    gate = Gate()
    with gate.sleeping():
        pass
    gate.restarted()
    assert gate.enter()


def test_many_threads_never_enter_a_sleeping_engine() -> None:
    gate = Gate()
    asleep = False
    faults: list[str] = []
    done = threading.Event()

    def ask() -> None:
        for _ in range(300):
            while not gate.enter():
                with gate.waking(False) as needed:
                    if needed:
                        wake()
            if asleep:
                faults.append("a request in a sleeping engine")
            gate.leave()

    def wake() -> None:
        nonlocal asleep
        asleep = False

    def rest() -> None:
        nonlocal asleep
        while not done.is_set():
            with gate.sleeping() as free:
                if free:
                    asleep = True

    callers = [threading.Thread(target=ask) for _ in range(4)]
    sleeper = threading.Thread(target=rest)
    for thread in (sleeper, *callers):
        thread.start()
    for thread in callers:
        thread.join(30)
    done.set()
    sleeper.join(5)
    assert not any(thread.is_alive() for thread in callers)
    assert faults == []
