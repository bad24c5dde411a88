"""What a server says of an engine in a process of its own."""

from __future__ import annotations

from serving.modelserver.base.stats import Stats


class Seconds:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_a_request_that_waits_inside_the_engine_counts_once() -> None:
    clock = Seconds()
    stats = Stats(clock, slots=4)
    stats.change(active=4, queued=1)
    stats.set_engine(held=0, waiting=2, kv_share=0.1)
    clock.now = 10.0
    assert (stats.busy, stats.waiting) == (2, 3)
    assert stats.busy_seconds == 50.0


def test_a_full_cache_counts_as_slots_while_there_are_requests() -> None:
    stats = Stats(Seconds(), slots=4)
    stats.change(active=1)
    stats.set_engine(held=3, waiting=0, kv_share=0.7)
    assert (stats.busy, stats.waiting) == (3, 0)
    stats.change(active=-1)
    assert (stats.busy, stats.waiting) == (0, 0)
