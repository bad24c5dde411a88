"""The source of a Pod's readings: our server, or queue-proxy."""

from __future__ import annotations

import pytest

from autoscaler.metrics.replicas import BELIEVED, ReplicaSource
from autoscaler.metrics.source import NoPage, NoSample
from autoscaler.metrics.stat import BadSample, Sample
from clusters.net.endpoints import Endpoint
from tests.support.clock import SteppedClock

POD = Endpoint("default/m-1", "127.0.0.1", 1, 2)
OTHER = Endpoint("default/m-2", "127.0.0.2", 1, 2)


class ScriptedReadings:
    """A MetricSource with readings that the test sets."""

    def __init__(self, answer: float | Exception) -> None:
        self.answer = answer
        self.asked = 0
        self.closed = False

    async def sample(self, endpoint: Endpoint) -> Sample:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return Sample(0.0, self.answer, 0.0, 0.0, 0.0)

    async def close(self) -> None:
        self.closed = True


class Scene:
    def __init__(self, server: float | Exception, proxy: float | Exception) -> None:
        self.clock = SteppedClock()
        self.server, self.proxy = ScriptedReadings(server), ScriptedReadings(proxy)
        self.source = ReplicaSource(self.server, self.proxy, self.clock)

    async def busy(self, endpoint: Endpoint = POD) -> float:
        return (await self.source.sample(endpoint)).busy_seconds

    @property
    def asked(self) -> tuple[int, int]:
        return self.server.asked, self.proxy.asked


async def test_our_server_is_asked_alone_once_it_has_answered() -> None:
    scene = Scene(1.0, 2.0)
    assert [await scene.busy() for _ in range(3)] == [1.0, 1.0, 1.0]
    assert scene.asked == (3, 1)
    scene.server.answer = NoPage("restarting")
    with pytest.raises(NoPage):
        await scene.busy()


async def test_a_pod_without_our_page_is_read_by_queue_proxy_and_asked_again_after_a_while() -> None:
    scene = Scene(NoPage("refused"), 2.0)
    assert [await scene.busy() for _ in range(3)] == [2.0, 2.0, 2.0]
    assert scene.asked == (1, 3)
    scene.clock.step(BELIEVED)
    scene.server.answer = 1.0
    assert await scene.busy() == 1.0
    scene.clock.step(BELIEVED)
    await scene.busy()
    assert scene.asked == (3, 4)


async def test_what_works_is_remembered_for_each_pod() -> None:
    scene = Scene(1.0, 2.0)
    await scene.busy(POD)
    scene.server.answer = NoPage("refused")
    assert await scene.busy(OTHER) == 2.0


async def test_a_server_that_is_only_slow_is_not_taken_for_another() -> None:
    scene = Scene(NoSample("silent"), 2.0)
    assert await scene.busy() == 2.0
    scene.server.answer = 1.0
    assert await scene.busy() == 1.0


@pytest.mark.parametrize(
    ("server", "proxy", "said"),
    [
        (NoSample("silent"), NoSample("too"), "silent"),
        (NoPage("refused"), NoSample("silent"), "silent"),
        (BadSample("NaN"), NoPage("refused"), "NaN"),
        (NoPage("refused"), BadSample("NaN"), "NaN"),
    ],
)
async def test_where_neither_answers_the_one_that_should_have_is_named(
    server: Exception, proxy: Exception, said: str
) -> None:
    with pytest.raises((NoSample, BadSample), match=said):
        await Scene(server, proxy).busy()


async def test_a_fault_of_ours_is_no_silence() -> None:
    with pytest.raises(RuntimeError):
        await Scene(RuntimeError("a fault"), 2.0).busy()


async def test_both_are_closed() -> None:
    scene = Scene(1.0, 2.0)
    await scene.source.close()
    assert scene.server.closed and scene.proxy.closed
