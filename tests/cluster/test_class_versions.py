"""Versions of plain Services of our class: those that nobody reaches any more, and those that never start."""

from __future__ import annotations

import asyncio

import pytest

from clusters.base.objects import POD_AUTOSCALER, REVISION, SERVICE
from tests.cluster.calling import Caller
from tests.cluster.plain import FIRST, NAME, Plain

pytestmark = pytest.mark.usefixtures("autoscaler")

SECOND = f"{NAME}-00002"
NEXT = {"spec": {"template": {"metadata": {"annotations": {"example.com/version": "2"}}}}}
LATER = "600s"  # a progress deadline that no test waits for
SOON = "3s"
BROKEN = {"CRASH": "cannot load the model"}
UNREADY = {"readinessProbe": {"httpGet": {"path": "/healthz", "port": 81}, "periodSeconds": 1}}
NOWHERE = {"image": "dev.local/nowhere:1"}
WITH_DEVICE = {"resources": {"limits": {"example.com/gpu": "1"}}}


async def test_a_version_that_is_not_reached_goes_to_zero_and_comes_back_when_it_is(
    plain: Plain, caller: Caller
) -> None:
    await plain.create(scaling={"min-scale": "1", "window": "6s", "target-burst-capacity": "0"})
    await plain.ready()
    async with caller.busy(2, ms=20) as answers:
        await plain.change(NEXT)
        await plain.ready()
        await plain.scaled(0)
        assert plain.asked(SECOND) == 1
        await plain.change({"spec": {"traffic": [{"revisionName": FIRST, "percent": 100}]}})
        await plain.ready()
        await plain.scaled(1)
        await plain.scaled(0, SECOND)
    assert answers.failures == []
    assert plain.asked() == 1


async def test_a_broken_version_says_why_within_seconds_and_is_given_up_at_its_deadline(plain: Plain) -> None:
    await asyncio.gather(
        plain.create("crashes", env=BROKEN, deadline=LATER),
        plain.create("absent", container=NOWHERE, deadline=LATER),
        plain.create("homeless", {"initial-scale": "2"}, container=WITH_DEVICE, deadline=LATER),
        plain.create("unready", container=UNREADY, deadline=SOON),
        plain.create("hopeless", container=WITH_DEVICE, deadline=SOON),
    )
    # Ready of the Service has the reason of its Configuration or of its Route, whichever comes last.
    said = await plain.says(SERVICE, "crashes", "ConfigurationsReady", "False", "RevisionFailed")
    assert BROKEN["CRASH"] in said["message"]
    await plain.says(REVISION, "crashes-00001", "ContainerHealthy", "False", "ExitCode1")
    said = await plain.says(REVISION, "homeless-00001", "ResourcesAvailable", "False", "Unschedulable")
    assert "example.com/gpu" in said["message"]
    assert len(plain.pods("homeless-00001")) == plain.most_asked("homeless-00001") == 2
    await plain.tells(POD_AUTOSCALER, "absent-00001", "Active", "ImagePullBackOff: ")

    for revision in ("unready-00001", "hopeless-00001"):
        await plain.says(POD_AUTOSCALER, revision, "Active", "False", "TimedOut")
        await plain.scaled(0, revision)
        await plain.says(REVISION, revision, "Ready", "False")
        assert plain.most_asked(revision) == 1
    for name in ("crashes", "absent", "homeless"):
        assert plain.asked(f"{name}-00001") > 0  # tried on until its deadline
