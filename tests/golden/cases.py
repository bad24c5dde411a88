"""The cases: what is done to a Knative Service, and what is waited for. Each plays in a namespace of its own.

A case's trace begins after `set_up` and ends when everything has settled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from clusters.base.clock import Clock
from clusters.base.errors import Unavailable
from clusters.base.objects import POD_AUTOSCALER, SERVERLESS_SERVICE, SERVICE
from tests.golden.recorder import Recorder
from tests.golden.scene import FIRST, NAME, SECOND, Scene, Stage
from tests.golden.trace import Trace

Case = Callable[[Scene], Awaitable[None]]

OK = 200


async def create(scene: Scene) -> None:
    """A new Service, until it is ready."""
    await scene.create()
    await scene.ready()


async def second_version(scene: Scene) -> None:
    """Another model, until it has the traffic."""
    await create(scene)
    await scene.set_up()
    await scene.deploy("triple")
    await scene.ready()


async def broken_version(scene: Scene) -> None:
    """A model that cannot be loaded: its container exits with 1, over and over, until it is given up.

    Knative's Revisions do not watch Pods: most often they hear of it when the progress deadline is over.
    """
    await create(scene)
    await scene.set_up()
    await scene.deploy("truncated", in_vain=True)
    await scene.until(lambda: scene.condition(SERVICE, NAME, "ConfigurationsReady") == ("False", "RevisionFailed"))
    await scene.until(lambda: scene.condition(POD_AUTOSCALER, SECOND, "Active") == ("False", "TimedOut"))


async def traffic_change(scene: Scene) -> None:
    """From all to the latest to 90 % and 10 % with a tag."""
    await create(scene)
    await scene.deploy("triple")
    await scene.ready()
    await scene.set_up()
    await scene.route(
        {"revisionName": FIRST, "percent": 10, "tag": "old"}, {"latestRevision": True, "percent": 90, "tag": "new"}
    )
    await scene.ready()


async def zero_and_back(scene: Scene) -> None:
    """No traffic, until the last replica is gone; then a request, until a replica is ready again."""
    await scene.create(to_zero=True)
    await scene.ready()
    await scene.until(lambda: scene.condition(POD_AUTOSCALER, FIRST, "Active")[0] == "True")
    await scene.set_up()
    if scene.condition(POD_AUTOSCALER, FIRST, "Active")[0] != "True":
        raise Unavailable(f"{NAME} went to zero before it had settled: choose a longer window")
    await scene.until(lambda: scene.condition(SERVERLESS_SERVICE, FIRST, "EndpointsPopulated")[0] == "Unknown")
    await scene.settled()
    status = await scene.ask()
    if status != OK:
        raise Unavailable(f"the request that woke {NAME} was answered with {status}")
    await scene.until(lambda: scene.is_ready(POD_AUTOSCALER, FIRST))


async def delete(scene: Scene) -> None:
    """The Service goes, and all that it owns."""
    await create(scene)
    await scene.set_up()
    await scene.delete()
    await scene.until(lambda: scene.recorder.is_empty)


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "create": create,
        "second-version": second_version,
        "broken-version": broken_version,
        "traffic-change": traffic_change,
        "zero-and-back": zero_and_back,
        "delete": delete,
    }
)


async def play(case: str, stage: Stage, namespace: str, clock: Clock) -> Trace:
    """Play a case in an empty namespace and return its trace. Raises TimeoutError where a step takes too long."""
    async with Recorder(stage.cluster, namespace, clock) as recorder:
        scene = Scene(stage, namespace, recorder)
        await CASES[case](scene)
        await scene.settled()
        return recorder.trace(scene.begin)
