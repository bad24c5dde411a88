"""Versions of plain Services of our class: those that nobody reaches, those that never start, and namesakes."""

from __future__ import annotations

import asyncio

import pytest

from clusters.objects import POD_AUTOSCALER, REVISION, SERVICE
from tests.cluster.plain import FIRST, NAME, Caller, Plain

pytestmark = pytest.mark.usefixtures("autoscaler")

SECOND = f"{NAME}-00002"


async def test_a_version_that_is_not_reached_goes_to_zero_and_comes_back_when_it_is(
    plain: Plain, caller: Caller
) -> None:
    await plain.create(min_scale="1", window="6s", target_burst_capacity="0")
    await plain.ready()
    async with caller.busy(2, ms=20) as answers:
        await plain.change({"spec": {"template": {"metadata": {"annotations": {"tests/version": "2"}}}}})
        await plain.ready()
        await plain.scaled(0)
        assert plain.asked(SECOND) == 1
        await plain.change({"spec": {"traffic": [{"revisionName": FIRST, "percent": 100}]}})
        await plain.ready()
        await plain.scaled(1)
        await plain.scaled(0, SECOND)
    assert answers.failures == []
    assert plain.asked() == 1


async def test_a_service_made_again_is_not_scaled_by_what_was_known_of_its_namesake(
    plain: Plain, caller: Caller
) -> None:
    scaling = {"target": "1", "target_utilization_percentage": "100", "max_scale": "3", "window": "30s"}
    await plain.create(**scaling)
    await plain.ready()
    async with caller.busy(3, ms=500):
        await plain.scaled(3)
    await plain.delete()
    again = len(plain.moments)
    await plain.create(**scaling)
    await plain.ready()
    await asyncio.sleep(3)
    seen = [
        one.after["spec"]["replicas"]
        for one in plain.moments[again:]
        if one.name == f"{FIRST}-deployment" and one.after
    ]
    assert set(seen) == {1}


async def test_a_version_that_never_starts_is_given_up_and_says_why(plain: Plain) -> None:
    await asyncio.gather(
        plain.create(
            "unready", container={"readinessProbe": {"httpGet": {"path": "/healthz", "port": 81}}}, deadline="10s"
        ),
        plain.create("crashes", env={"CRASH": "cannot load the model"}, deadline="10s"),
        plain.create("absent", container={"image": "dev.local/nowhere:1"}, deadline="10s"),
    )
    for name in ("unready", "crashes", "absent"):
        await plain.says(SERVICE, name, "Ready", "False")
        await plain.says(POD_AUTOSCALER, f"{name}-00001", "Active", "False", "TimedOut")
        await plain.scaled(0, f"{name}-00001")
    for name in ("unready", "crashes", "absent"):
        r = plain.get(REVISION, f"{name}-00001")
        print(name, [(c["type"], c["status"], c.get("reason"), c.get("message")) for c in r["status"]["conditions"]])
        b = next(m.at for m in plain.moments if m.name == name)
        for m in plain.moments:
            if m.kind is REVISION and m.name == f"{name}-00001" and m.after:
                print(
                    "%.2f" % (m.at - b),
                    [
                        (c["type"], c["status"], c.get("reason"), c.get("message"))
                        for c in m.after.get("status", {}).get("conditions", ())
                        if c["status"] == "False"
                    ],
                )
