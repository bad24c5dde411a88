"""Two controllers, of which the leader is frozen in the middle of its work and goes on when another leads (K8)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from clusters.base.objects import LEASE, MODEL, SERVICE, version_of
from tests.faults.kit.served import Served, controller, served, uri, version_in
from tests.serving.models import model_object
from tests.support.replicas import ReplicaProcess, until_ready
from tests.support.wait import eventually

MODELS = 20
HELD_BACK = 1.5
"""s: a status that only tells of replicas waits for one second at most (`reconciler.pacing`)."""
FOLLOWED_WITHIN = 20.0
"""s until another one leads: the Lease's 8 s, a look at it every 2 s, and a busy machine."""


async def versions(here: Served) -> list[int]:
    """What each Service runs, by name."""
    return [version_in(one) for one in (await here.cluster.list(SERVICE)).items]


async def deploy(here: Served, version: int) -> None:
    """All Models, in one version."""
    for number in range(MODELS):
        await here.stage.deploy(model_object(f"m{number:02d}", storageUri=uri(version)))


async def all_run(here: Served, version: int) -> None:
    """Return once every Service runs that version."""

    async def holds() -> bool:
        return await versions(here) == [version] * MODELS

    await eventually(holds, FOLLOWED_WITHIN)


async def in_term(here: Served, term: int) -> None:
    """Return once the Lease has been taken so often."""

    async def holds() -> bool:
        lease = await here.cluster.get(LEASE, "knodel-controller", "knodel-system")
        return int(lease["spec"]["leaseTransitions"]) == term and bool(lease["spec"]["holderIdentity"])

    await eventually(holds, FOLLOWED_WITHIN)


async def lost_its_lead(replica: ReplicaProcess) -> bool:
    """Whether it answers, does not lead, and has made everything anew since it did."""
    metrics = await replica.metrics()
    return metrics["knodel_leader"] == 0.0 and metrics["knodel_compositions_total"] >= 2.0


@pytest.mark.fault("K8")
async def test_a_leader_frozen_among_its_writes_writes_no_older_wish_when_it_goes_on(tmp_path: Path) -> None:
    """It does not exit: it stops acting, forgets what it knew, and stands by."""
    async with (
        served(tmp_path) as here,
        controller(here.kubeconfig, "first") as first,
    ):
        await until_ready(first)
        await eventually(first.leads)
        await deploy(here, 1)
        await all_run(here, 1)
        async with controller(here.kubeconfig, "second") as second:
            await until_ready(second)
            await deploy(here, 2)
            await eventually(lambda: _some_run(here, 2), FOLLOWED_WITHIN)
            first.process.send_signal(signal.SIGSTOP)
            stopped_with = await versions(here)
            await deploy(here, 3)
            await all_run(here, 3)
            await in_term(here, 1)
            before = await _settled(here)
            first.process.send_signal(signal.SIGCONT)
            await eventually(lambda: lost_its_lead(first), FOLLOWED_WITHIN)
            after = await _settled(here)

            assert 2 in stopped_with
            assert await second.leads()
            assert after == before
            assert here.transcript.went_back() == []
            assert here.transcript.terms == [0, 1]


async def _some_run(here: Served, version: int) -> bool:
    return version in await versions(here)


async def _settled(here: Served) -> dict[str, str]:
    """What is written, once nothing has been for longer than a status is held back."""
    former: dict[str, str] = {}
    while (present := await _written(here)) != former:
        former = present
        await asyncio.sleep(HELD_BACK)
    return present


async def _written(here: Served) -> dict[str, str]:
    """Versions of all Models and Services."""
    kinds = (MODEL, SERVICE)
    return {f"{kind} {one['metadata']['name']}": version_of(one) for kind in kinds for one in
            (await here.cluster.list(kind)).items}  # fmt: skip
