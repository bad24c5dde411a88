"""Random schedules of the activator's hold queue: no endpoint has more than its slots, and counts return to zero."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hypothesis import strategies as st

from clusters.base.clock import SystemClock
from clusters.base.objects import Key
from clusters.embedded.activator.proxy.errors import HoldQueueFull, RevisionFailed
from clusters.embedded.activator.throttler import RevisionThrottler
from clusters.embedded.activator.wire import ActivatorTarget, RevisionLoad
from clusters.net.endpoints import Endpoint
from tests.fuzz.target import Target

KEY = Key("default", "m-00001")
ENDPOINTS = tuple(Endpoint(f"default/{number}", "127.0.0.1", number, number) for number in (1, 2, 3))
HELD = 4  # requests that may wait
STEPS = st.sampled_from(["arrive", "arrive", "arrive", "leave", "refuse", "work", "none", "one", "all", "broken"])
SCHEDULES = st.tuples(st.integers(1, 3), st.lists(STEPS, max_size=60))


@contextmanager
def opened() -> Iterator[Callable[[tuple[int, Sequence[str]]], None]]:
    """Return the check of a schedule."""
    with asyncio.Runner() as runner:
        yield lambda schedule: runner.run(_play(*schedule))


class _Stage:
    """A revision and its requests."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.at_work = dict.fromkeys(ENDPOINTS, 0)
        self.refusing = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.throttle = RevisionThrottler(self.target(), lambda _: None, SystemClock())

    def target(self, endpoints: Sequence[Endpoint] = (), broken: bool = False) -> ActivatorTarget:
        """Return a target of the revision."""
        return ActivatorTarget(KEY, tuple(endpoints), HELD, self.slots, 10.0, broken)

    async def request(self) -> None:
        """Send a request, which is refused `refusing` times."""
        request = self.throttle.new_request(SystemClock().monotonic())
        while True:
            reservation = await self.throttle.reserve(request)
            if not self.refusing:
                break
            self.refusing -= 1
            reservation.refused(request)
        self.at_work[reservation.endpoint] += 1
        try:
            assert self.at_work[reservation.endpoint] <= self.slots, "more than the endpoint has room for"
            reservation.connected()
            await asyncio.sleep(0)
        finally:
            self.at_work[reservation.endpoint] -= 1
            reservation.release()
            reservation.release()


async def _play(slots: int, steps: Sequence[str]) -> None:
    stage = _Stage(slots)
    for number, step in enumerate(steps):
        await _step(stage, step)
        refused = list(steps[: number + 1]).count("refuse")  # who was refused waits again, however many do
        assert stage.throttle.load.queued <= HELD + refused, "more than may wait"
    stage.refusing = 0
    stage.throttle.update(stage.target(ENDPOINTS))
    outcomes = await asyncio.gather(*stage.tasks, return_exceptions=True)
    expected = (asyncio.CancelledError, HoldQueueFull, RevisionFailed)
    assert all(outcome is None or isinstance(outcome, expected) for outcome in outcomes), outcomes
    assert stage.throttle.load == RevisionLoad()
    stage.throttle.remove()


async def _step(stage: _Stage, step: str) -> None:
    match step:
        case "arrive":
            stage.tasks.append(asyncio.create_task(stage.request()))
        case "leave" if stage.tasks:
            stage.tasks[len(stage.tasks) // 2].cancel()
        case "refuse":
            stage.refusing = 1
        case "work":
            await asyncio.sleep(0)
        case "none" | "broken":
            stage.throttle.update(stage.target((), step == "broken"))
        case "one" | "all":
            stage.throttle.update(stage.target(ENDPOINTS[:1] if step == "one" else ENDPOINTS))


TARGETS = (Target("the hold queue", SCHEDULES, opened, everyday=100),)
