"""Test `knodel restart`: which replicas it names on the Model, and how it waits until they are replaced."""

from __future__ import annotations

import asyncio

from clusters.base.objects import LABEL_REVISION, POD, POD_AUTOSCALER
from serving.types.annotations import ANNOTATION_RESTART, LABEL_MODEL
from tests.serving.cli.conftest import Served, check
from tests.support.wait import eventually


async def add_replica(served: Served, name: str, revision: str) -> None:
    """Create a Pod of the Model magika."""
    labels = {LABEL_MODEL: "magika", LABEL_REVISION: revision}
    pod = {
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "m"}]},
    }
    await served.cluster.create(POD, pod, manager="test")


async def add_autoscaler(served: Served, revision: str, initialized: str) -> None:
    """Create the PodAutoscaler of a revision of the Model magika."""
    labels = {LABEL_MODEL: "magika", LABEL_REVISION: revision}
    made = {"metadata": {"name": revision, "namespace": "default", "labels": labels}, "spec": {}}
    await served.cluster.create(POD_AUTOSCALER, made, manager="test")
    status = {"status": {"conditions": [{"type": "ScaleTargetInitialized", "status": initialized}]}}
    await served.cluster.patch(POD_AUTOSCALER, revision, status, "default", manager="test", subresource="status")


async def restarted(served: Served) -> str | None:
    """Return the names of the Pods on the Model."""
    annotations = (await served.model("magika"))["metadata"].get("annotations") or {}
    found: str | None = annotations.get(ANNOTATION_RESTART)
    return found


async def test_a_model_without_replicas_needs_no_restart(served: Served) -> None:
    await served.deploy("magika")

    done = await served.knodel("restart", "magika")

    assert (done.code, done.err) == (0, "")
    assert done.out == "model magika has no replicas, so there is nothing to restart\n"
    assert await restarted(served) is None


async def test_restart_waits_until_every_replica_is_replaced(served: Served) -> None:
    await served.deploy("magika")
    await add_autoscaler(served, "magika-00001", "True")
    for name in ("a", "b"):
        await add_replica(served, name, "magika-00001")

    running = asyncio.create_task(served.knodel("restart", "magika"))
    await eventually(lambda: restarted(served))
    assert await restarted(served) == "a,b"
    await add_replica(served, "c", "magika-00001")
    await served.cluster.delete(POD, "a", "default", grace_period=0)
    await served.cluster.delete(POD, "b", "default", grace_period=0)

    done = await running
    assert (done.code, done.err) == (0, "")
    assert done.out == "the replicas of model magika (2 of magika-00001) were replaced\n"


async def test_a_timeout_reports_how_many_replicas_are_left(served: Served) -> None:
    await served.deploy("magika")
    await add_autoscaler(served, "magika-00001", "True")
    await add_replica(served, "a", "magika-00001")

    done = await served.knodel("restart", "magika", "--timeout", "0s")

    check(done, 4, ["not replaced within 0 s", "1 of 1 are left", "the restart continues"])


async def test_versions_that_were_never_ready_are_left_to_the_cluster(served: Served) -> None:
    await served.deploy("magika")
    await add_autoscaler(served, "magika-00001", "Unknown")
    await add_replica(served, "a", "magika-00001")
    check(await served.knodel("restart", "magika"), 1, ["magika-00001 has never been ready", "knodel describe magika"])
    assert await restarted(served) is None

    await add_autoscaler(served, "magika-00002", "True")
    await add_replica(served, "b", "magika-00002")
    done = await served.knodel("restart", "magika", "--no-wait")

    assert done.code == 0
    assert "only those of other versions are replaced" in done.err
    assert "1 of magika-00002) are being replaced: `knodel describe magika` shows them" in done.out
    assert await restarted(served) == "b"


async def test_a_model_that_does_not_exist_is_not_restarted(served: Served) -> None:
    check(await served.knodel("restart", "nothing"), 3, ["nothing"])
