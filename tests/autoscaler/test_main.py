"""The autoscaler as a process, and what it leaves out as long as no activator is read."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autoscaler.apis import Policy
from autoscaler.config import Zero
from autoscaler.main import read_settings
from autoscaler.metrics.no_activator import NoActivator
from autoscaler.reconciler.spec import make_wishes
from clusters.embedded.cluster import EmbeddedCluster
from clusters.objects import LEASE, Key
from tests.support.api import api_server
from tests.support.replicas import replica, until_ready
from tests.support.wait import eventually


@pytest.mark.parametrize(
    ("least", "reachability", "floor"),
    [(0, "Reachable", 1), (0, "", 1), (3, "Reachable", 3), (0, "Unreachable", 0)],
)
def test_what_nobody_would_wake_keeps_a_replica_as_long_as_it_can_be_reached(
    least: int, reachability: str, floor: int
) -> None:
    zero = read_settings("", "").zero
    pod_autoscaler = {"metadata": {"name": "m-00001"}, "spec": {"reachability": reachability}}

    wishes = make_wishes(pod_autoscaler, Policy(min_replicas=least), zero, datetime.now(UTC))

    assert wishes.spec["min"] == floor


def test_where_somebody_listens_a_revision_may_go_to_zero() -> None:
    pod_autoscaler = {"metadata": {"name": "m-00001"}, "spec": {"reachability": "Reachable"}}

    assert make_wishes(pod_autoscaler, Policy(), Zero(), datetime.now(UTC)).spec["min"] == 0


def test_without_an_activator_nothing_waits_and_nobody_calls() -> None:
    activator = NoActivator()
    activator.subscribe(lambda _: pytest.fail("called"))

    assert (activator.load(Key("n", "m")).queued, activator.load(Key("n", "m")).active) == (0, 0)


async def test_the_process_is_ready_leads_and_gives_its_lease_back(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    async with (
        api_server(cluster, tmp_path) as kubeconfig,
        replica("autoscaler.main", ["--kubeconfig", str(kubeconfig)], tmp_path, POD_NAME="a", POD_UID="1") as one,
    ):
        await until_ready(one)
        await eventually(one.leads)
        assert (await cluster.get(LEASE, "knodel-autoscaler", "knodel-system"))["spec"]["holderIdentity"] == "a_1"

        assert await asyncio.wait_for(one.end(), 5) == 0
        assert (await cluster.get(LEASE, "knodel-autoscaler", "knodel-system"))["spec"]["holderIdentity"] == ""
