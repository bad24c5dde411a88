"""The autoscaler as a process, from its options to a detected request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from autoscaler.config import Zero
from autoscaler.main import PROGRAM
from autoscaler.reconciler.spec import make_revision_spec
from autoscaler.types import Policy
from clusters.base.clock import SystemClock
from clusters.base.objects import LEASE, Key
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.manager.options import InvalidOptions, parse_options
from tests.autoscaler.activators import Pods, holding
from tests.autoscaler.pages import serving
from tests.autoscaler.world import DEPLOYMENT_NAME, REVISION_NAME, World
from tests.support.api import api_server
from tests.support.clock import SteppedClock
from tests.support.replicas import replica, until_ready
from tests.support.wait import eventually

HEARD = "knodel_activators_heard"
POLLS = 'knodel_activator_polls_total{result="answered"}'


@pytest.mark.parametrize(
    ("least", "reachability", "floor"),
    [(0, "Reachable", 1), (0, "", 1), (3, "Reachable", 3), (0, "Unreachable", 0)],
)
def test_what_nobody_would_wake_keeps_a_replica_as_long_as_it_can_be_reached(
    least: int, reachability: str, floor: int
) -> None:
    pod_autoscaler = {"metadata": {"name": "m-00001"}, "spec": {"reachability": reachability}}

    wishes = make_revision_spec(pod_autoscaler, Policy(min_replicas=least), Zero(enabled=False), SystemClock().now())

    assert wishes.columns["min"] == floor


def test_where_somebody_listens_a_revision_may_go_to_zero() -> None:
    pod_autoscaler = {"metadata": {"name": "m-00001"}, "spec": {"reachability": "Reachable"}}

    assert make_revision_spec(pod_autoscaler, Policy(), Zero(), SystemClock().now()).columns["min"] == 0


def test_the_key_of_the_pools_is_an_option_of_this_program_alone() -> None:
    argv = ["--pool-key", "/etc/knodel/pool-key/key"]

    assert parse_options("p", "", argv, {}, PROGRAM.files).files == {"pool-key": Path(argv[1])}
    assert parse_options("p", "", [], {}, PROGRAM.files).files == {}
    with pytest.raises(InvalidOptions, match="--pool-key"):
        parse_options("p", "", argv, {})


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


async def test_the_process_wakes_a_revision_for_which_an_activator_holds_a_request(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    world = World(cluster, SteppedClock())
    await world.create_revision(Policy(initial_scale=0), replicas=0)
    async with (
        serving(holding()) as activator,
        api_server(cluster, tmp_path) as kubeconfig,
        replica("autoscaler.main", ["--kubeconfig", str(kubeconfig)], tmp_path, POD_NAME="a", POD_UID="1") as one,
    ):
        await Pods(cluster).add("activator-0", activator)
        await until_ready(one)
        await eventually(one.leads)

        async def listens() -> bool:
            return (await one.metrics())[POLLS] > 1

        await eventually(listens)
        assert (await one.metrics())[HEARD] == 1.0
        assert "scaling" not in one.log.read_text()
        activator.behave = holding(queued=1, key=Key("default", REVISION_NAME))
        scaling = f"scaling default/{DEPLOYMENT_NAME} from 0 to 1"  # which the API server of this test does not serve
        await eventually(lambda: scaling in one.log.read_text())
