"""The controller of Models as a process, over HTTP and TLS: leadership, take-over, settings, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.base.objects import LEASE, MODEL, SERVICE, Object, condition_of, version_of
from clusters.embedded.cluster import EmbeddedCluster
from serving.platform.main import main
from tests.serving.models import model_object
from tests.support.api import api_server
from tests.support.replicas import ReplicaProcess, replica, until_ready
from tests.support.wait import eventually

DIES_WITHIN = 15.0  # s until another one acts: the Lease's 8 s, a look at it every 2 s, and a busy machine


@pytest.fixture
async def kubeconfig(cluster: EmbeddedCluster, tmp_path: Path) -> AsyncIterator[Path]:
    """Of an API server over the cluster."""
    async with api_server(cluster, tmp_path) as path:
        yield path


@contextlib.asynccontextmanager
async def controller(kubeconfig: Path, name: str, config: Path | None = None) -> AsyncIterator[ReplicaProcess]:
    """`python -m serving.platform.main`."""
    arguments = ["--kubeconfig", str(kubeconfig), *(["--config", str(config)] if config else [])]
    async with replica(
        "serving.platform.main", arguments, kubeconfig.parent, name, POD_NAME=name, POD_UID=f"uid-of-{name}"
    ) as started:
        yield started


async def image_of(cluster: EmbeddedCluster, name: str) -> str:
    """The image that the Service of a Model runs; empty while there is none."""
    services = {one["metadata"]["name"]: one for one in (await cluster.list(SERVICE)).items}
    if name not in services:
        return ""
    return str(services[name]["spec"]["template"]["spec"]["containers"][0]["image"])


async def deploy(cluster: EmbeddedCluster, name: str) -> Object:
    """A Model."""
    made = model_object(name=name)
    return await cluster.create(MODEL, made, manager="tests")


async def served(cluster: EmbeddedCluster, name: str, within: float = 10.0) -> None:
    """Return once the Model has its Service, and says so."""

    async def holds() -> bool:
        found = await cluster.get(MODEL, name, "default")
        applied = condition_of(found, "ObjectsApplied")
        return applied is not None and applied["status"] == "True" and bool(await image_of(cluster, name))

    await eventually(holds, within)


@pytest.mark.fault("K8")
async def test_a_standby_takes_over_from_a_leader_that_stops_and_that_writes_nothing_when_it_goes_on(
    cluster: EmbeddedCluster, kubeconfig: Path
) -> None:
    """A leader that was killed looks the same to the standby: nobody renews the Lease."""
    async with controller(kubeconfig, "first") as first, controller(kubeconfig, "second") as second:
        await until_ready(first, second)
        await eventually(lambda: _one_leads(first, second))
        leader, standby = (first, second) if await first.leads() else (second, first)
        await deploy(cluster, "magika")
        await served(cluster, "magika")

        leader.process.send_signal(signal.SIGSTOP)
        await deploy(cluster, "after")
        change = {"spec": {"storageUri": "file:///models/newer"}}
        await cluster.patch(MODEL, "magika", change, "default", manager="tests")
        await served(cluster, "after", DIES_WITHIN)
        await eventually(lambda: _runs(cluster, "file:///models/newer"))
        assert await standby.leads()
        lease = await cluster.get(LEASE, "knodel-controller", "knodel-system")
        assert "_uid-of-" in lease["spec"]["holderIdentity"]
        version = version_of(await cluster.get(SERVICE, "magika", "default"))
        leader.process.send_signal(signal.SIGCONT)

        await eventually(lambda: _stands_by(leader))
        assert await standby.leads()
        assert version_of(await cluster.get(SERVICE, "magika", "default")) == version
        assert await standby.end() == 0


async def test_an_asked_end_is_quick_and_gives_the_lease_back(cluster: EmbeddedCluster, kubeconfig: Path) -> None:
    async with controller(kubeconfig, "only") as only:
        await until_ready(only)
        await eventually(only.leads)
        assert await only.probe("/healthz") == 200

        code = await asyncio.wait_for(only.end(), 5)

        assert code == 0
        assert (await cluster.get(LEASE, "knodel-controller", "knodel-system"))["spec"]["holderIdentity"] == ""
        lines = [json.loads(line) for line in only.log.read_text().splitlines()]
        assert {"time", "level", "logger", "message"} <= lines[-1].keys()
        assert lines[-1]["message"] == "stopped by a signal"


async def test_changed_settings_are_in_force_without_a_restart(
    cluster: EmbeddedCluster, kubeconfig: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("server: {image: 'example.org/server:1'}\n")
    async with controller(kubeconfig, "only", config) as only:
        await until_ready(only)
        await deploy(cluster, "magika")
        await served(cluster, "magika")
        assert await image_of(cluster, "magika") == "example.org/server:1"

        config.write_text("server: {image: 'example.org/server:2'}\n")

        async def renewed() -> bool:
            return await image_of(cluster, "magika") == "example.org/server:2"

        await eventually(renewed)
        assert only.process.returncode is None
        term = (await cluster.get(LEASE, "knodel-controller", "knodel-system"))["spec"]["leaseTransitions"]
        assert term == 0


def test_wrong_usage_and_bad_settings_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--no-such-thing"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    config = tmp_path / "config.yaml"
    config.write_text("gatewy: {}\n")
    assert main(["--config", str(config)]) == 1
    assert main(["--kubeconfig", str(tmp_path / "none")]) == 1


async def _runs(cluster: EmbeddedCluster, uri: str) -> bool:
    service = await cluster.get(SERVICE, "magika", "default")
    return uri in service["spec"]["template"]["spec"]["containers"][0]["args"]


async def _stands_by(replica: ReplicaProcess) -> bool:
    """Whether it answers, and was made anew since it lost the lead."""
    metrics = await replica.metrics()
    return metrics["knodel_leader"] == 0.0 and metrics["knodel_compositions_total"] == 2.0


async def _one_leads(first: ReplicaProcess, second: ReplicaProcess) -> bool:
    return await first.leads() or await second.leads()
