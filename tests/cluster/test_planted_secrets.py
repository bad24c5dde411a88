"""Secrets are planted on a real cluster wherever a user gives one, and nothing there has told (design §4.9).

What `tests/long/test_planted_secrets.py` plants is planted in a namespace of the test's own, with the Knodel that is
installed. Searched: every object but Secrets, so Events and statuses too; logs of Knodel's and the Models' Pods, those
before their restarts too; their pages of figures; arguments and variables of their processes, where the node is
this machine; what the command shows; the answers on the way. Secrets reach servers as files alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial

import pytest

from clusters.base.objects import (
    CONFIG_MAP,
    MODEL,
    MODEL_EVENT,
    POD,
    SECRET,
    Kind,
    Object,
    labels_of,
    name_of,
    namespace_of,
)
from clusters.net.endpoints import MANAGEMENT_PORT, is_ready
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from serving.client.client import Client
from serving.client.kubeconfig import KubeContext
from serving.client.replicas import SIDECAR, status_of
from serving.install import pool_key
from serving.install.kinds import CORE_SERVICE
from serving.makers.pod_spec import CONTAINER
from serving.makers.volumes import CREDENTIALS_PATH
from serving.types.annotations import LABEL_MODEL
from serving.types.settings.settings import Settings
from tests.cluster.place import SMALL
from tests.security import cluster_traces
from tests.security.canaries import Canaries
from tests.security.echo import echo
from tests.security.planting import BROKEN, GOOD, MODELS, WITHIN, Planting, Platform
from tests.security.traces import Command, Trace, objects, said, shown
from tests.support import models
from tests.support.artifacts import ArtifactServer
from tests.support.hub import hub
from tests.support.kubernetes import KubeTarget
from tests.testbed.waiting import becomes

pytestmark = pytest.mark.timeout(1200)

TOLD = "secret that the test tells"
TELLER = "teller"
FORMATS = ("json", "table")  # YAML has what JSON has
COMPONENTS = {"knodel-controller", "knodel-autoscaler", "knodel-eventing", "knodel-router"}
IN_SECRETS = {
    "token of the hub", "token that a hub refuses", "token for nobody", "key of a store", "session of a store",
    "key of an EventSource",
}  # fmt: skip
CRASHED_WITHIN = 150.0  # s until servers that cannot load have ended once, and run again


@pytest.fixture
def client(target: KubeTarget) -> Client:
    """The API server, as the command asks it."""
    return Client(KubeContext.find(target.context, {"KUBECONFIG": str(target.kubeconfig)}).connect())


@pytest.fixture
def platform(installed: Settings, client: Client, target: KubeTarget, namespace: str) -> Platform:
    """The installed Knodel; credentials and keys belong into Secrets, which the search leaves out."""
    gateway, environment = installed.gateway, os.environ | {"KUBECONFIG": str(target.kubeconfig)}
    service = client.get(CORE_SERVICE, "knodel-eventing", SYSTEM_NAMESPACE)["spec"]
    [port] = [one["port"] for one in service["ports"] if one["name"] == "http"]
    return Platform(
        Command(environment, ("--kube-context", target.context, "-n", namespace)),
        gateway=f"http://{gateway.address}:{gateway.port}",
        webhook=f"http://{service['clusterIP']}:{port}/events",
        host=lambda model: {"Host": f"{model}.{namespace}.{gateway.domain}"},
        spec={**SMALL, "maxReplicas": 1},
    )


def test_no_planted_secret_is_told(
    platform: Platform, client: Client, namespace: str, artifacts: ArtifactServer, installed: Settings
) -> None:
    canaries, address = Canaries(), artifacts.address
    planting, token = Planting(platform, canaries), canaries.plant("token of the hub")
    canaries.plant("key of warm pools", client.get(SECRET, pool_key.NAME, SYSTEM_NAMESPACE)["data"][pool_key.KEY])
    model = {"config.json": b"{}", "model.onnx": models.double()}
    with echo(address) as hostile, hub(address, token, model) as store:
        planting.stores(store, token, hostile)
        planting.requests()
        planting.events(artifacts.uri("double"))
        assert becomes(partial(have_crashed, client, namespace, BROKEN), CRASHED_WITHIN, 1.0)
        tell(client, namespace, canaries.plant(TOLD), installed.server.image)

        pods = cluster_traces.pods_of(client, (SYSTEM_NAMESPACE, namespace))
        searched = [*planting.heard, *left(client, platform, pods)]
        strays = {stray for place, content in searched for stray in canaries.strays_in(place, content)}
        assert strays == {f"{TOLD} in objects {CONFIG_MAP}", f"{TOLD} in log {TELLER} {TELLER}"}
        check_all_was_searched({place for place, _ in searched}, pods)
        check_all_were_there(client, namespace, canaries)
        check_secrets_come_as_files([pod for pod in pods if namespace_of(pod) == namespace])
        assert cluster_traces.core_dumpers(pods) == []


def left(client: Client, platform: Platform, pods: list[Object]) -> Iterator[Trace]:
    """All that is there now."""
    yield from cluster_traces.logs(client, pods)
    yield from cluster_traces.pages(client, pods)
    yield from cluster_traces.processes(pods)
    yield from objects(client, cluster_traces.kinds_of(client))
    yield from shown(platform.command, MODELS, FORMATS)
    for model in MODELS:
        yield said(platform.command, "logs", model, "--previous")


def have_crashed(client: Client, namespace: str, names: tuple[str, ...]) -> bool:
    """Whether a server of each of these Models has ended and was started again."""
    pods = client.list(POD, namespace)["items"]
    return all(any(status_of(pod).get("restartCount") for pod in of_model(pods, name)) for name in names)


def of_model(pods: list[Object], name: str) -> list[Object]:
    """Those of the Model."""
    return [pod for pod in pods if labels_of(pod).get(LABEL_MODEL) == name]


def tell(client: Client, namespace: str, secret: str, image: str) -> None:
    """Put it where it does not belong: into an annotation, and from there into the log of a Pod.

    The search has to find it in both places.
    """
    metadata = {"name": TELLER, "namespace": namespace}
    annotated = {**metadata, "annotations": {"example.com/told": secret}}
    client.create(CONFIG_MAP, _typed(CONFIG_MAP, annotated, data={"told": secret}), namespace)
    variable = {"name": "TOLD", "valueFrom": {"configMapKeyRef": {"name": TELLER, "key": "told"}}}
    program = ["python", "-c", "import os; print(os.environ['TOLD'])"]
    container = {"name": TELLER, "image": image, "command": program, "env": [variable]}
    spec = {"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False}
    client.create(POD, _typed(POD, metadata, spec=spec), namespace)
    assert becomes(lambda: client.get(POD, TELLER, namespace)["status"].get("phase") == "Succeeded", WITHIN, 0.5)


def _typed(kind: Kind, metadata: Object, **parts: Object) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **parts}


def check_all_was_searched(places: set[str], pods: list[Object]) -> None:
    """What could not be read was not searched: of each sort, what has to be there was."""
    wanted = {f"objects {kind}" for kind in (MODEL, MODEL_EVENT, POD, CONFIG_MAP, "events", "events.events.k8s.io")}
    system = [pod for pod in pods if namespace_of(pod) == SYSTEM_NAMESPACE and is_ready(pod)]
    assert {labels_of(pod).get("app.kubernetes.io/name", "") for pod in system} >= COMPONENTS
    for pod in system:
        wanted |= {f"log {name_of(pod)} {one['name']}" for one in pod["spec"]["containers"]}
        wanted.add(f"page {name_of(pod)} 9090 metrics")
    serving = of_model(pods, GOOD)
    assert serving
    for pod in serving:
        wanted |= {f"log {name_of(pod)} {name}" for name in (CONTAINER, SIDECAR)}
        wanted |= {f"page {name_of(pod)} {MANAGEMENT_PORT} {page}" for page in ("metrics", "stats")}
    assert wanted - places == set()
    for name in BROKEN:
        former = {f"log {name_of(pod)} {CONTAINER} before" for pod in of_model(pods, name)}
        assert former & places, f"no log of {name} before its restart"


def check_all_were_there(client: Client, namespace: str, canaries: Canaries) -> None:
    """The search would find them: what Secrets hold stands in one of them."""
    kept = json.dumps(client.list(SECRET, namespace)).encode()
    assert set(canaries.seen_in(kept)) == IN_SECRETS


def check_secrets_come_as_files(pods: list[Object]) -> None:
    """The credentials are mounted where the server looks, and no variable of any Pod comes from a Secret."""
    for pod in pods:
        for container in pod["spec"]["containers"]:
            sources = [one.get("valueFrom") or {} for one in container.get("env") or ()]
            named = [key for one in (*sources, *container.get("envFrom", ())) for key in one]
            assert not {"secretKeyRef", "secretRef"}.intersection(named), f"{name_of(pod)} {container['name']}"
    for pod in of_model(pods, GOOD):
        [volume] = [one for one in pod["spec"]["volumes"] if one.get("secret", {}).get("secretName") == "hub"]
        [server] = [one for one in pod["spec"]["containers"] if one["name"] == CONTAINER]
        [mount] = [one for one in server["volumeMounts"] if one["name"] == volume["name"]]
        assert (mount["mountPath"], mount.get("readOnly")) == (CREDENTIALS_PATH, True)
