"""The serving reconciler against real Knative: what it writes, what it leaves alone, and what it says when refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from autoscaler.types import POLICY_ANNOTATION
from clusters.base.api import Cluster
from clusters.base.objects import (
    ANNOTATION_NO_GC,
    CONFIGURATION,
    DEPLOYMENT,
    MODEL,
    POD,
    POD_AUTOSCALER,
    REVISION,
    ROUTE,
    SERVERLESS_SERVICE,
    SERVICE,
    Kind,
    annotations_of,
    is_true,
    labels_of,
    name_of,
    uid_of,
    version_of,
)
from serving.platform.main import PROGRAM as CONTROLLER
from serving.reconciler.rollout.commands import rollback
from serving.types.annotations import LABEL_MODEL
from tests.cluster.acting import acting, settings_of
from tests.cluster.place import MANAGER, QUIET, Place, place
from tests.scenarios.world import traffic_of
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KubeTarget
from tests.support.wait import eventually

pytestmark = pytest.mark.timeout(300)

GONE_WITHIN = 90.0  # s; queue-proxy drains for 30-45 s


async def test_what_is_as_it_should_be_is_not_written_again(
    here: Place, cluster: Cluster, target: KubeTarget, tmp_path: Path
) -> None:
    await here.deploy("steady", minReplicas=1)
    await here.deploy("varied", minReplicas=1, variants=[{"name": "a", "percent": 75}, {"name": "b", "percent": 25}])
    await here.quiet()
    kinds = (MODEL, SERVICE, CONFIGURATION, ROUTE)
    before = [(kind, one) for kind in kinds for one in (await cluster.list(kind, here.namespace)).items]

    settings = await settings_of(cluster)
    here.writes.writes.clear()
    async with acting(CONTROLLER, cluster, target, here.namespace, tmp_path, settings) as second:
        await asyncio.sleep(QUIET)

    assert second.writes == here.writes.writes == []
    for kind, one in before:
        assert version_of(await here.get(kind, name_of(one))) == version_of(one), name_of(one)


async def test_scaling_fields_reach_living_revisions_and_change_neither_revision_nor_pods(
    cluster: Cluster, target: KubeTarget, namespace: str, artifacts: ArtifactServer, tmp_path: Path
) -> None:
    async with place(cluster, target, namespace, artifacts, tmp_path) as here:
        await here.deploy("scaled", minReplicas=1, maxReplicas=2)
        [revision], pods = await here.of_model(REVISION, "scaled"), await here.pods("scaled")
        assert len(pods) == 1

        await here.deploy("scaled", maxReplicas=7, scaleTarget=2, scaleToZeroAfter="30s")

        async def told() -> bool:
            autoscaler = await here.get(POD_AUTOSCALER, "scaled-00001")
            return '"maxReplicas":7' in annotations_of(autoscaler).get(POLICY_ANNOTATION, "")

        await eventually(told)
        await here.quiet()
        assert [uid_of(one) for one in await here.of_model(REVISION, "scaled")] == [uid_of(revision)]
        assert await here.pods("scaled") == pods

        await here.deploy("scaled", minReplicas=2)

        async def grown() -> bool:
            return len(await here.pods("scaled")) == 2

        await eventually(grown, 60)
        assert pods < await here.pods("scaled")


async def test_our_class_gives_knative_all_that_it_waits_for(
    cluster: Cluster, target: KubeTarget, namespace: str, artifacts: ArtifactServer, tmp_path: Path
) -> None:
    async with place(cluster, target, namespace, artifacts, tmp_path) as here:
        await here.deploy("own", minReplicas=0, scaleToZeroAfter="6s")

        answer = await here.world.ask("own", namespace=namespace)
        autoscaler = await here.get(POD_AUTOSCALER, "own-00001")

        assert answer.status == 200
        assert all(is_true(autoscaler, one) for one in ("Ready", "Active", "SKSReady", "ScaleTargetInitialized"))
        assert (await here.get(SERVERLESS_SERVICE, "own-00001"))["spec"]["mode"] == "Serve"

        async def whole() -> bool:
            return is_true(await here.get(SERVICE, "own"), "Ready")

        await eventually(whole)
        await here.deploy("own", "triple")

        async def at_zero() -> bool:
            former = await here.get(DEPLOYMENT, "own-00001-deployment")
            return bool(former["spec"]["replicas"] == 0)

        await eventually(at_zero, 90)  # nobody reaches it any more
        assert not is_true(await here.get(POD_AUTOSCALER, "own-00001"), "Active")
        assert is_true(await here.get(REVISION, "own-00001"), "Ready")
        assert (await here.world.ask("own", namespace=namespace)).revision == "own-00002"


async def test_the_version_to_go_back_to_is_kept_from_collection_and_no_other(here: Place) -> None:
    await here.deploy("kept", version="1")
    await here.deploy("kept", "triple", version="2")
    await here.deploy("kept", "double", version="3")

    async def marked() -> bool:
        revisions = await here.of_model(REVISION, "kept")
        kept = [name_of(one) for one in revisions if annotations_of(one).get(ANNOTATION_NO_GC) == "true"]
        assert kept == ["kept-00002"], kept
        return True

    await eventually(marked)
    pods = await here.pods("kept")
    await here.quiet()
    assert await here.pods("kept") <= pods


async def test_a_rollback_to_a_revision_at_zero_answers_and_so_does_one_to_a_collected_revision(here: Place) -> None:
    await here.deploy("back", version="1", scaleToZeroAfter="6s")
    await here.deploy("back", "triple", version="2")
    await here.deploy("back", "double", version="3")

    async def at_zero() -> bool:
        return bool((await here.get(DEPLOYMENT, "back-00002-deployment"))["spec"]["replicas"] == 0)

    await eventually(at_zero, 120)
    await roll_back(here, "back", {"back-00002": 100})
    assert (await here.world.ask("back", namespace=here.namespace)).revision == "back-00002"

    await here.cluster.delete(REVISION, "back-00001", here.namespace)  # as Knative's collector would
    await eventually(lambda: is_gone(here, REVISION, "back-00001"))
    await roll_back(here, "back", {"back-00004": 100}, to="back-00001")
    answer = await here.world.ask("back", namespace=here.namespace)
    assert (answer.revision, answer.body["outputs"][0]["data"]) == ("back-00004", [2.0])


async def is_gone(here: Place, kind: Kind, name: str) -> bool:
    """Whether there is no such object of the Model `back` any more."""
    return name not in {name_of(one) for one in await here.of_model(kind, "back")}


async def roll_back(here: Place, name: str, expected: dict[str, int], to: str | None = None) -> None:
    """`knodel rollback NAME [--to REVISION]`, until the traffic is so."""
    found, revisions = await here.get(MODEL, name), await here.of_model(REVISION, name)
    changed = await here.cluster.patch(MODEL, name, rollback(found, revisions, to), here.namespace, manager=MANAGER)
    ready = await here.world.ready(name, here.namespace, int(changed["metadata"]["generation"]))
    assert traffic_of(ready) == expected


@pytest.mark.fault("K5")
async def test_a_users_own_fields_on_our_objects_survive_and_ours_are_mended(here: Place) -> None:
    await here.deploy("edited", minReplicas=1)
    edit = {
        "metadata": {"labels": {"team": "vision", LABEL_MODEL: "other"}},
        "spec": {"template": {"metadata": {"annotations": {"example.org/note": "mine"}}}},
    }
    await here.cluster.patch(SERVICE, "edited", edit, here.namespace, manager="user")

    async def mended() -> bool:
        return labels_of(await here.get(SERVICE, "edited")).get(LABEL_MODEL) == "edited"

    await eventually(mended)
    found = await here.get(SERVICE, "edited")
    assert labels_of(found)["team"] == "vision"
    assert found["spec"]["template"]["metadata"]["annotations"]["example.org/note"] == "mine"


async def test_deleting_a_model_takes_everything_along_also_while_no_controller_runs(
    cluster: Cluster, target: KubeTarget, namespace: str, artifacts: ArtifactServer, tmp_path: Path
) -> None:
    kinds = (SERVICE, CONFIGURATION, ROUTE, REVISION, POD_AUTOSCALER, DEPLOYMENT, SERVERLESS_SERVICE, POD)
    async with place(cluster, target, namespace, artifacts, tmp_path) as here:
        await here.deploy("single", minReplicas=1)
        await here.deploy("varied", minReplicas=1, variants=[{"name": "a", "percent": 100}])
    for name in ("single", "varied"):
        await cluster.delete(MODEL, name, namespace)

    async def gone() -> bool:
        left = {kind.kind: [name_of(one) for one in (await cluster.list(kind, namespace)).items] for kind in kinds}
        assert not any(left.values()), left
        return True

    await eventually(gone, GONE_WITHIN)
