"""What dies while a warm model serves: our controller, the API server, the store; no request may notice."""

from __future__ import annotations

import asyncio
import time

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import ClusterError
from clusters.base.objects import MODEL, Object, generation_of, is_true
from serving.types.settings.settings import Settings
from tests.cluster.calling import Answers, Caller
from tests.cluster.killing import Kill, both, component, knative, leader
from tests.cluster.plain import Plain
from tests.scenarios.world import infer_body, model
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KNATIVE_CLASS, KubeTarget
from tests.support.prober import Probes, probing
from tests.support.wait import eventually

MANAGER = "tests"
NAME = "warm"
WITHIN = 120.0  # s
MORE = 100  # answers after the fault is over
LATER = 5.0  # s that chance may put between two starts at once on one machine
PAUSE = 0.2  # s of a caller after a failure
SMALL = {"resources": {"cpu": "50m", "memory": "256Mi"}, "minReplicas": 1}


@pytest.fixture
def on_the_testbed(target: KubeTarget) -> None:
    """These tests kill processes of the testbed; they have no business on any other cluster."""
    if target.audit_log is None:
        pytest.skip("only the testbed's processes may be killed")


KILLS = {
    "controller": leader("knodel-controller"),
    "API server": component("kube-apiserver"),
    "store": component("etcd"),
}
KILLS_AT_ZERO = {
    "autoscaler": both(leader("knodel-autoscaler"), knative("autoscaler")),
    "controller": both(leader("knodel-controller"), knative("controller")),
    "kubelet": component("kubelet"),
    "activator": knative("activator"),
}


@pytest.mark.parametrize("kill", KILLS.values(), ids=KILLS)
async def test_a_warm_model_answers_every_request_and_changes_go_on_afterwards(
    cluster: Cluster,
    target: KubeTarget,
    installed: Settings,
    namespace: str,
    artifacts: ArtifactServer,
    on_the_testbed: None,
    kill: Kill,
) -> None:
    await cluster.create(MODEL, model(NAME, namespace, storageUri=artifacts.uri("double"), **SMALL), manager=MANAGER)
    await ready(cluster, namespace, 1)
    gateway = installed.gateway
    url = f"http://{gateway.address}:{gateway.port}/v2/models/{NAME}/infer"
    headers = {"Host": f"{NAME}.{namespace}.{gateway.domain}", "Content-Type": "application/json"}

    async with probing(url, headers, infer_body(1.0), rate=20.0) as probes:
        await answers(probes, MORE)
        await kill(cluster)
        await answers(probes, MORE)
        change = {"spec": {"storageUri": artifacts.uri("triple"), "version": "2"}}
        changed = await patched(cluster, namespace, change)
        await ready(cluster, namespace, generation_of(changed))
        await answers(probes, MORE)

    assert probes.failures == []
    assert probes.answered > 3 * MORE


async def ready(cluster: Cluster, namespace: str, generation: int) -> None:
    """Return once the Model is Ready at that generation."""

    async def done() -> bool:
        try:
            found = await cluster.get(MODEL, NAME, namespace)
        except ClusterError:
            return False  # the API server is coming back
        seen = int((found.get("status") or {}).get("observedGeneration", 0))
        return seen >= generation and is_true(found, "Ready")

    await eventually(done, WITHIN)


async def patched(cluster: Cluster, namespace: str, change: Object) -> Object:
    """The Model after `change`, once the API server takes it."""

    async def sent() -> Object | None:
        try:
            return await cluster.patch(MODEL, NAME, change, namespace, manager=MANAGER)
        except ClusterError:
            return None

    found = await eventually(sent, WITHIN)
    if found is None:
        raise AssertionError("the change was never taken")
    return found


async def answers(probes: Probes, more: int) -> None:
    """Return once that many more requests have been answered."""
    wanted = probes.answered + len(probes.failures) + more

    async def enough() -> bool:
        return probes.answered + len(probes.failures) >= wanted

    await eventually(enough, WITHIN)


@pytest.mark.parametrize("kill", KILLS_AT_ZERO.values(), ids=KILLS_AT_ZERO)
async def test_from_zero_ours_is_back_with_knatives_own_class_and_what_is_warm_serves_on(
    cluster: Cluster, plain: Plain, caller: Caller, autoscaler: float, on_the_testbed: None, kill: Kill
) -> None:
    scaling = {"window": "6s"}
    await plain.create("ours", scaling)
    await plain.create("theirs", scaling, autoscaler_class=KNATIVE_CLASS)
    await plain.create(NAME, {"min-scale": "1", "target-burst-capacity": "0"})
    for name in ("ours", "theirs", NAME):
        await plain.ready(name)
    await asyncio.gather(plain.at_zero("ours-00001"), plain.at_zero("theirs-00001"))
    await plain.until(lambda: plain.mode(f"{NAME}-00001") == "Serve")

    async with caller.busy(4, NAME, ms=100) as warm:
        await caller.rounds(warm, MORE)
        await kill(cluster)
        ours, theirs = await asyncio.gather(first_answer(caller, "ours"), first_answer(caller, "theirs"))
        await caller.rounds(warm, MORE)

    print(f"first answer from zero: ours {ours:.2f} s, theirs {theirs:.2f} s")
    assert warm.failures == []
    assert ours <= theirs + LATER


async def first_answer(caller: Caller, name: str) -> float:
    """Ask until the Service answers; the seconds until then."""
    began, answers = time.monotonic(), Answers()
    while not answers.total:
        assert time.monotonic() < began + WITHIN, answers.failures[-1:]
        await caller.ask(answers, name)
        await asyncio.sleep(0 if answers.total else PAUSE)
    return time.monotonic() - began
