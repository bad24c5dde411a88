"""The installed autoscaler in its Pods: a plain Knative Service of our class with our model server, and a broken Model.

Plain Services with a tiny container are in `test_class_*.py`.
"""

from __future__ import annotations

from autoscaler.types import POLICY_ANNOTATION
from clusters.base.api import Cluster
from clusters.base.objects import (
    DEPLOYMENT,
    EVENT,
    MODEL,
    POD_AUTOSCALER,
    SERVERLESS_SERVICE,
    SERVICE,
    Object,
    condition_of,
    is_true,
)
from serving.types.settings.settings import Settings
from tests.cluster.place import MANAGER, SMALL
from tests.golden.scene import make_template
from tests.scenarios.world import model
from tests.support.artifacts import ArtifactServer
from tests.support.wait import eventually

NAME = "plain"
REVISION = f"{NAME}-00001"
CLASS = "gpu.autoscaling.knodel.dev"
WITHIN = 120.0  # s for a step


async def test_a_plain_service_of_our_class_becomes_ready_and_gets_the_replicas_that_it_asks_for(
    cluster: Cluster, installed: Settings, namespace: str, artifacts: ArtifactServer
) -> None:
    scaling = {"min_scale": "2", "max_scale": "3"}
    template = make_template(NAME, artifacts.uri("double"), installed.server, CLASS, scaling)
    metadata = {"name": NAME, "namespace": namespace}
    made = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": metadata}
    await cluster.create(SERVICE, {**made, "spec": {"template": template}}, manager=MANAGER)

    async def served() -> bool:
        return is_true(await cluster.get(SERVICE, NAME, namespace), "Ready")

    async def replicated() -> Object | None:
        found = await cluster.get(DEPLOYMENT, f"{REVISION}-deployment", namespace)
        return found if int((found.get("status") or {}).get("readyReplicas") or 0) == 2 else None

    await eventually(served, WITHIN)
    await eventually(replicated, WITHIN)
    autoscaler = await cluster.get(POD_AUTOSCALER, REVISION, namespace)
    service = await cluster.get(SERVERLESS_SERVICE, REVISION, namespace)
    assert autoscaler["status"]["desiredScale"] == 2
    assert is_true(autoscaler, "ScaleTargetInitialized")
    assert is_true(service, "Ready")

    # A policy that nobody can follow is said in an Event, which is counted up when it comes again; the replicas stay.
    for times in (1, 2):
        for policy in ("{", None):
            await annotate(cluster, namespace, policy)
            if policy is not None:
                await eventually(lambda: told(cluster, namespace, times), WITHIN)  # noqa: B023 - waited for here
    assert await replicated()


async def test_a_model_that_cannot_be_loaded_says_so_within_seconds(
    cluster: Cluster, installed: Settings, namespace: str, artifacts: ArtifactServer
) -> None:
    spec = {"storageUri": artifacts.uri("truncated"), **SMALL}  # its startupDeadline are ten minutes
    await cluster.create(MODEL, model(NAME, namespace, **spec), manager=MANAGER)

    async def said() -> bool:
        found = condition_of(await cluster.get(MODEL, NAME, namespace), "Ready") or {}
        assert found.get("status") == "False" and "Container failed with" in found.get("message", ""), found
        return True

    await eventually(said, WITHIN)


async def annotate(cluster: Cluster, namespace: str, policy: str | None) -> None:
    """Put the scaling policy on the PodAutoscaler, or take it off."""
    patch = {"metadata": {"annotations": {POLICY_ANNOTATION: policy}}}
    await cluster.patch(POD_AUTOSCALER, REVISION, patch, namespace, manager=MANAGER)


async def told(cluster: Cluster, namespace: str, times: int) -> bool:
    """Whether the Event about the policy was counted so often."""
    events = (await cluster.list(EVENT, namespace)).items
    return any(event["reason"] == "InvalidPolicy" and int(event.get("count") or 0) >= times for event in events)
