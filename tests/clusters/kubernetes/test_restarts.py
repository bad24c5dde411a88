"""Calls and watches just after a restart of an API server, which denies requests before it has loaded its roles."""

from __future__ import annotations

import asyncio

import pytest

from clusters.base.errors import Forbidden
from clusters.kubernetes import KubernetesCluster, transport
from tests.clusters.kubernetes.api_server import FakeApiServer, Step, answer, refuse, reset, stream
from tests.clusters.kubernetes.calls import CALLS, sort_of
from tests.clusters.kubernetes.conftest import Connected
from tests.clusters.kubernetes.test_watch_faults import following, names
from tests.support.clock import SteppedClock
from tests.support.wait import eventually


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions in quick succession."""
    monkeypatch.setattr(transport, "RULES_PAUSE", 0.05)


NO_RIGHT = refuse(
    403, "Forbidden", 'widgets "w" is forbidden: User "u" cannot patch resource "widgets" in API group "x" in the n'
)
NO_QUOTA = refuse(403, "Forbidden", 'widgets "w" is forbidden: exceeded quota: q')
AWAY: dict[str, Step] = {"reset": reset, "503 by a proxy": answer(503, b"<html>down</html>")}


async def break_off(server: FakeApiServer, cluster: KubernetesCluster, how: Step = reset) -> None:
    """The server goes away within a write."""
    server.script("other", how)
    with pytest.raises(Exception, match="try again"):
        await CALLS["apply"](cluster)
    server.asked.clear()


@pytest.mark.parametrize("call", CALLS)
async def test_a_right_that_is_missing_just_after_a_break_is_asked_for_again(
    server: FakeApiServer, cluster: KubernetesCluster, call: str
) -> None:
    server.put("w")
    await break_off(server, cluster)
    server.script(sort_of(call), NO_RIGHT, NO_RIGHT)
    await CALLS[call](cluster)
    assert len(server.asked) == 3


@pytest.mark.parametrize("away", AWAY)
async def test_whatever_broke_the_server_may_have_been_restarted(
    server: FakeApiServer, cluster: KubernetesCluster, away: str
) -> None:
    await break_off(server, cluster, AWAY[away])
    server.script("other", NO_RIGHT)
    await CALLS["apply"](cluster)


async def test_a_right_that_is_missing_at_any_other_time_is_told_at_once(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    server.script("other", NO_RIGHT)
    with pytest.raises(Forbidden):
        await CALLS["apply"](cluster)
    assert len(server.asked) == 1


async def test_a_quota_is_told_at_once_after_a_break_too(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    await break_off(server, cluster)
    server.script("other", NO_QUOTA)
    with pytest.raises(Forbidden, match="quota"):
        await CALLS["apply"](cluster)
    assert len(server.asked) == 1


async def test_a_right_that_stays_missing_after_a_break_is_told_within_seconds(
    server: FakeApiServer, connected: Connected
) -> None:
    clock = SteppedClock()
    cluster = await connected(clock=clock)
    await break_off(server, cluster)
    server.always["other"] = NO_RIGHT
    task = asyncio.ensure_future(CALLS["apply"](cluster))

    async def told() -> bool:
        clock.step(0.5)
        await asyncio.sleep(0.005)
        return bool(task.done())

    await eventually(told)
    with pytest.raises(Forbidden):
        await task
    assert 5 <= clock.monotonic() <= 15


@pytest.mark.fault("K2")
async def test_a_watch_goes_on_where_it_stood_when_it_is_let_in_again(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    server.put("a")
    server.script("watch", stream(then="reset"), NO_RIGHT, NO_RIGHT)
    async with following(cluster) as informer:
        server.put("b")
        await eventually(lambda: names(informer) == {"a", "b"})
    assert server.count("list") == 1
