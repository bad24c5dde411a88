"""From a training job's end to the new version: Knative Eventing, the event webhook, the controller, as installed.

What `manifests/components/eventing` and `training-jobs` say is done as they say it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
import yaml

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import (
    CONFIG_MAP,
    DEPLOYMENT,
    EVENT_SOURCE,
    MODEL,
    MODEL_EVENT,
    Kind,
    Object,
    is_true,
    timestamp,
    uid_of,
)
from eventing.mapping.jobs import ANNOTATION_MODEL, ANNOTATION_STORAGE_URI, JOB_KINDS
from eventing.objects.model_event import ModelEvent, read_model_event
from serving.types.settings.settings import Settings
from tests.cluster.place import MANAGER, PATIENCE, SMALL
from tests.manifests.generate import MANIFESTS
from tests.scenarios.world import World
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KubeTarget
from tests.support.wait import eventually

pytestmark = pytest.mark.timeout(300)

JOB = JOB_KINDS[0].kind
BROKER = Kind("eventing.knative.dev", "v1", "Broker", "brokers")
TRIGGER = Kind("eventing.knative.dev", "v1", "Trigger", "triggers")
API_SERVER_SOURCE = Kind("sources.knative.dev", "v1", "ApiServerSource", "apiserversources")
WAY = "training-jobs"
"""The name of everything in that component."""
READY_WITHIN = 60.0
"""s; a receive adapter's Pod starts, and accounts with their tokens are made."""
ASKED, TRIPLED = 2.0, 6.0

Kubectl = Callable[..., str]
"""Words of a command of kubectl's; its stdout."""


@pytest.fixture(autouse=True)
async def _needed(cluster: Cluster, installed: Settings) -> None:
    """Knodel is on the cluster, and Knative Eventing with tokens."""
    try:
        features = await cluster.get(CONFIG_MAP, "config-features", "knative-eventing")
    except NotFound:
        pytest.skip("no Knative Eventing here: on the testbed `python -m tests.testbed up --knodel --eventing`")
    assert features["data"].get("authentication-oidc", "").lower() == "enabled", features["data"]


@pytest.fixture
def kubectl(target: KubeTarget) -> Kubectl:
    """On the context that the options name."""
    command = ["kubectl", f"--kubeconfig={target.kubeconfig}", f"--context={target.context}"]

    def run(*words: str | Path) -> str:
        ran = subprocess.run([*command, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


@pytest.fixture(autouse=True)
def _component(kubectl: Kubectl, tmp_path: Path, _needed: None) -> Iterator[None]:
    """`components/eventing`, for as long as the test runs."""
    shutil.copytree(MANIFESTS / "components" / "eventing", tmp_path / "eventing")
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text("components: [../eventing]\n")
    kubectl("apply", "--server-side", "-k", overlay)
    yield
    kubectl("delete", "--ignore-not-found", "-k", overlay)


@pytest.fixture
def way(tmp_path: Path, namespace: str, artifacts: ArtifactServer) -> Path:
    """A copy of `components/training-jobs` for the namespace, with the places that its comments name filled in."""
    folder = shutil.copytree(MANIFESTS / "components" / WAY, tmp_path / WAY)
    prefix = artifacts.uri("double").rpartition("/")[0]
    for file, before, after in (
        ("kustomization.yaml", "namespace: default\n", f"namespace: {namespace}\n"),
        ("event-source.yaml", "s3://models/", f"{prefix}/"),
    ):
        text = (folder / file).read_text()
        assert before in text
        (folder / file).write_text(text.replace(before, after))
    return folder


@pytest.fixture
async def world(cluster: Cluster, installed: Settings, artifacts: ArtifactServer) -> AsyncIterator[World]:
    """The installed platform."""
    gateway = installed.gateway
    address = f"http://{gateway.address}:{gateway.port}"
    made = World(cluster, address, gateway.domain, artifacts.uri, defaults=SMALL, patience=PATIENCE)
    yield made
    await made.close()


def job(name: str, namespace: str, image: str, storage_uri: str) -> Object:
    """A training job that is done at once; it says what it trains, and where the result lies."""
    annotations = {ANNOTATION_MODEL: "iris", ANNOTATION_STORAGE_URI: storage_uri}
    container = {"name": "train", "image": image, "command": ["python", "-c", "print('trained')"]}
    pod = {"containers": [container], "restartPolicy": "Never"}
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"template": {"spec": pod}, "backoffLimit": 0},
    }


async def events_of(cluster: Cluster, namespace: str, phase: str) -> list[ModelEvent]:
    """Those that the component's EventSource let in, and of which that became."""
    found = [read_model_event(one) for one in (await cluster.list(MODEL_EVENT, namespace)).items]
    return [one for one in found if (one.spec.event_source, one.status.phase) == (WAY, phase)]


async def is_tripled(world: World, namespace: str) -> bool:
    """Whether the version that the job made answers."""
    answer = await world.ask("iris", namespace=namespace, value=ASKED)
    return answer.status == 200 and answer.body["outputs"][0]["data"] == [TRIPLED]


async def check_effect(cluster: Cluster, trained: Object, namespace: str) -> None:
    """One event was applied: the end of this job."""
    applied = await eventually(partial(events_of, cluster, namespace, "Applied"), READY_WITHIN)
    assert [one.spec.id for one in applied] == [uid_of(trained)]


async def test_what_a_job_made_is_served_once_it_has_completed(
    cluster: Cluster, installed: Settings, kubectl: Kubectl, way: Path, namespace: str, world: World
) -> None:
    await world.deploy("iris", namespace=namespace, storageUri=world.artifacts("double"))
    kubectl("apply", "--server-side", "-k", way)

    async def stands() -> bool:
        return all(
            [is_true(await cluster.get(k, WAY, namespace), "Ready") for k in (BROKER, TRIGGER, API_SERVER_SOURCE)]
        )

    await eventually(stands, READY_WITHIN)
    wanted = job("train-iris", namespace, installed.server.image, world.artifacts("triple"))
    trained = await cluster.create(JOB, wanted, manager=MANAGER)

    await world.eventually(partial(is_tripled, world, namespace))
    await check_effect(cluster, trained, namespace)
    ignored = await events_of(cluster, namespace, "Ignored")
    assert {one.status.message or one.spec.ignored for one in ignored} <= {"the job has not completed"}


async def test_a_job_that_completed_while_no_webhook_was_there_is_found_by_the_next_one(
    cluster: Cluster, installed: Settings, kubectl: Kubectl, way: Path, namespace: str, world: World
) -> None:
    await world.deploy("iris", namespace=namespace, storageUri=world.artifacts("double"))
    wanted = job("train-iris", namespace, installed.server.image, world.artifacts("triple"))
    trained = await cluster.create(JOB, wanted, manager=MANAGER)

    async def completed() -> bool:
        return is_true(await cluster.get(JOB, "train-iris", namespace), "Complete")

    await eventually(completed, READY_WITHIN)
    [source] = [one for one in yaml.safe_load_all(kubectl("kustomize", way)) if one["kind"] == EVENT_SOURCE.kind]
    await cluster.create(EVENT_SOURCE, source, manager=MANAGER)
    again = {"kubectl.kubernetes.io/restartedAt": timestamp(datetime.now(UTC))}
    patch = {"spec": {"template": {"metadata": {"annotations": again}}}}
    await cluster.patch(DEPLOYMENT, "knodel-eventing", patch, "knodel-system", manager=MANAGER)

    await world.eventually(partial(is_tripled, world, namespace))
    await check_effect(cluster, trained, namespace)


async def test_a_trigger_finds_the_address_of_a_model(cluster: Cluster, namespace: str, world: World) -> None:
    await world.deploy("iris", namespace=namespace, storageUri=world.artifacts("double"))
    model = {"apiVersion": MODEL.api_version, "kind": MODEL.kind, "name": "iris"}
    subscriber = {"ref": model, "uri": "/v2/models/iris/infer"}
    metadata = {"name": "asking", "namespace": namespace}
    await cluster.create(BROKER, {"metadata": metadata}, manager=MANAGER)
    trigger = {"metadata": metadata, "spec": {"broker": "asking", "subscriber": subscriber}}
    await cluster.create(TRIGGER, trigger, manager=MANAGER)

    async def address() -> str:
        return str((await cluster.get(TRIGGER, "asking", namespace)).get("status", {}).get("subscriberUri", ""))

    found = await eventually(address, READY_WITHIN)
    first = (await cluster.get(MODEL, "iris", namespace))["status"]["addresses"][0]
    assert first["name"] == "cluster-local"
    assert found == f"{first['url']}/v2/models/iris/infer"
