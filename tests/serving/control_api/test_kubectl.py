"""kubectl itself against the control API; skipped where no kubectl is installed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from clusters.base.objects import CONFIG_MAP, DEPLOYMENT, MODEL, NAMESPACE, POD, REVISION, SECRET, Object, labels_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.secrets import values_of
from clusters.runtime.recorder import Recorder
from tests.scenarios.world import model
from tests.serving.control_api.conftest import Served
from tests.support.clock import SteppedClock

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

MANIFEST = json.dumps(model("magika", storageUri="file:///m", minReplicas=1))
NAMES = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "default"}}


async def kubectl(
    served: Served, *arguments: str, stdin: str = "", code: int = 0, environment: dict[str, str] | None = None
) -> str:
    """Return what kubectl prints; its exit code must be `code`."""
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        "--kubeconfig",
        str(served.kubeconfig),
        f"--cache-dir={served.kubeconfig.parent}/cache",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    out, err = await process.communicate(stdin.encode())
    assert process.returncode == code, (out, err)
    return out.decode() + err.decode()


def rows(text: str) -> list[list[str]]:
    """Return the words of each line."""
    return [line.split() for line in text.splitlines()]


async def test_kubectl_applies_on_the_server_side_and_lists(served: Served, cluster: EmbeddedCluster) -> None:
    applied = await kubectl(served, "apply", "--server-side", "-f", "-", stdin=MANIFEST)
    again = await kubectl(served, "apply", "--server-side", "-f", "-", stdin=MANIFEST)
    listed = await kubectl(served, "get", "models")
    wide = await kubectl(served, "get", "models", "-A", "-o", "wide")

    assert "serverside-applied" in applied
    assert "serverside-applied" in again
    assert rows(listed)[0] == [
        "NAME", "READY", "REASON", "REPLICAS", "DESIRED", "SERVING", "PERCENT", "VERSION", "ROLLOUT", "URL", "AGE",
    ]  # fmt: skip
    assert "magika" in listed
    assert "file:///m" in wide
    stored = await cluster.get(MODEL, "magika", "default")
    assert stored["metadata"]["generation"] == 1
    assert stored["metadata"]["managedFields"][0]["manager"] == "kubectl"


async def test_kubectl_applies_on_the_client_side_patches_describes_and_deletes(served: Served) -> None:
    await kubectl(served, "apply", "-f", "-", stdin=MANIFEST)
    await kubectl(served, "apply", "-f", "-", stdin=MANIFEST.replace('"minReplicas": 1', '"minReplicas": 2'))
    await kubectl(served, "patch", "model", "magika", "--type=merge", "-p", '{"spec": {"maxReplicas": 9}}')
    read = json.loads(await kubectl(served, "get", "model", "magika", "-o", "json"))
    described = await kubectl(served, "describe", "model", "magika")
    await kubectl(served, "label", "namespace", "default", "team=a")
    await kubectl(served, "delete", "model", "magika")

    assert read["spec"] == {"storageUri": "file:///m", "minReplicas": 2, "maxReplicas": 9}
    assert "Storage Uri" in described
    assert "not found" in await kubectl(served, "get", "model", "magika", code=1)


async def test_kubectl_waits_for_a_condition(served: Served, cluster: EmbeddedCluster) -> None:
    await kubectl(served, "apply", "--server-side", "-f", "-", stdin=MANIFEST)
    waiting = asyncio.create_task(kubectl(served, "wait", "--for=condition=Ready", "model/magika", "--timeout=30s"))

    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await cluster.patch(MODEL, "magika", status, "default", manager="test", subresource="status")

    assert "condition met" in await waiting


async def test_kubectl_may_not_write_what_the_platform_owns(served: Served) -> None:
    pod = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}})

    refused = await kubectl(served, "create", "-f", "-", stdin=pod, code=1)

    assert "written by the platform" in refused


async def test_kubectl_makes_a_secret_and_shows_no_value_of_it(served: Served, cluster: EmbeddedCluster) -> None:
    await kubectl(served, "create", "secret", "generic", "keys", "--from-literal=HF_TOKEN=s3cret")
    listed = await kubectl(served, "get", "secrets")
    described = await kubectl(served, "describe", "secret", "keys")

    assert values_of(await cluster.get(SECRET, "keys", "default")) == {"HF_TOKEN": b"s3cret"}
    assert rows(listed)[0] == ["NAME", "TYPE", "DATA", "AGE"]
    assert rows(listed)[1][:3] == ["keys", "Opaque", "1"]
    assert "HF_TOKEN:  6 bytes" in described
    assert "s3cret" not in listed + described


async def test_kubectl_creates_core_objects_each_by_its_own_command(served: Served, cluster: EmbeddedCluster) -> None:
    docker = ("--docker-server=ghcr.io", "--docker-username=u", "--docker-password=p")
    await kubectl(served, "create", "ns", "team-a")
    await kubectl(served, "create", "secret", "docker-registry", "pull", *docker)
    await kubectl(served, "create", "configmap", "settings", "--from-literal=a=b", "-n", "team-a")
    again = await kubectl(served, "create", "ns", "team-a", code=1)
    refused = await kubectl(served, "create", "configmap", "settings", "--from-literal=a b=c", code=1)

    assert "AlreadyExists" in again
    assert "a b" in refused
    assert (await cluster.get(NAMESPACE, "team-a"))["status"] == {"phase": "Active"}
    assert (await cluster.get(SECRET, "pull", "default"))["type"] == "kubernetes.io/dockerconfigjson"
    assert (await cluster.get(CONFIG_MAP, "settings", "team-a"))["data"] == {"a": "b"}
    assert rows(await kubectl(served, "get", "cm", "-n", "team-a"))[1][:2] == ["settings", "1"]


async def test_kubectl_changes_core_objects_in_every_way(
    served: Served, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    manifest = json.dumps({**NAMES, "stringData": {"a": "1", "b": "2"}})
    await kubectl(served, "apply", "-f", "-", stdin=manifest)
    await kubectl(served, "apply", "-f", "-", stdin=json.dumps({**NAMES, "data": {"a": "Mw=="}}))
    secret = await cluster.get(SECRET, "keys", "default")
    assert "stringData" not in secret
    assert values_of(secret) == {"a": b"3", "b": b"2"}  # kubectl removes a key of `data` only if it was applied there

    await kubectl(served, "patch", "secret", "keys", "-p", '{"stringData": {"c": "4"}}')
    await kubectl(served, "label", "secret", "keys", "team=a")
    await kubectl(served, "annotate", "secret", "keys", "note=b")
    secret = await cluster.get(SECRET, "keys", "default")
    assert values_of(secret) == {"a": b"3", "b": b"2", "c": b"4"}
    assert (labels_of(secret), secret["metadata"]["annotations"]["note"]) == ({"team": "a"}, "b")

    manifest = json.dumps({**NAMES, "data": {"d": "NQ=="}})
    changes = await kubectl(served, "diff", "-f", "-", stdin=manifest, code=1)
    await kubectl(served, "replace", "-f", "-", stdin=manifest)
    secret = await cluster.get(SECRET, "keys", "default")
    assert "+  d: '***" in changes
    assert (values_of(secret), labels_of(secret)) == ({"d": b"5"}, {})

    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/^kind: Secret/kind: Secret\\nimmutable: true/" "$1"\n')
    editor.chmod(0o755)
    await kubectl(served, "edit", "secret", "keys", environment={"KUBE_EDITOR": str(editor)})
    assert (await cluster.get(SECRET, "keys", "default"))["immutable"] is True


async def test_kubectl_replaces_and_edits_a_model_and_compares_it(
    served: Served, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    await kubectl(served, "apply", "-f", "-", stdin=MANIFEST)
    other = json.dumps(model("magika", storageUri="file:///n"))
    changes = await kubectl(served, "diff", "-f", "-", stdin=other, code=1)
    await kubectl(served, "replace", "-f", "-", stdin=other)
    assert "+  storageUri: file:///n" in changes
    assert (await cluster.get(MODEL, "magika", "default"))["spec"] == {"storageUri": "file:///n"}

    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s,file:///n,file:///o," "$1"\n')
    editor.chmod(0o755)
    await kubectl(served, "edit", "model", "magika", environment={"KUBE_EDITOR": str(editor)})
    assert (await cluster.get(MODEL, "magika", "default"))["spec"] == {"storageUri": "file:///o"}
    refused = await kubectl(served, "patch", "model", "magika", "-p", '{"spec": {"version": "2"}}', code=1)
    assert "application/strategic-merge-patch+json is not supported" in refused


async def test_kubectl_shows_events_pods_and_deployments_as_on_a_cluster(
    served: Served, cluster: EmbeddedCluster
) -> None:
    await kubectl(served, "create", "ns", "team-a")
    recorder = Recorder(cluster, "knodel", SteppedClock())
    await recorder.event(NAMESPACE, await cluster.get(NAMESPACE, "team-a"), "Warning", "Failed", "it broke")
    for kind, obj in (POD, pod()), (DEPLOYMENT, deployment()), (REVISION, revision()):
        made = await cluster.create(kind, obj, manager="test")
        status = {"status": obj["status"]}
        await cluster.patch(kind, made["metadata"]["name"], status, "default", manager="test", subresource="status")

    events = rows(await kubectl(served, "get", "events"))
    assert events[0] == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert events[1][-5:] == ["Warning", "Failed", "namespace/team-a", "it", "broke"]
    assert "it broke" in await kubectl(served, "events")

    pods = rows(await kubectl(served, "get", "pods", "-o", "wide"))
    assert pods[0][:9] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED", "NODE"]
    assert pods[1][:4] == ["p", "0/1", "CrashLoopBackOff", "2"]
    assert rows(await kubectl(served, "get", "deploy"))[1][:4] == ["d", "1/2", "2", "1"]
    revisions = rows(await kubectl(served, "get", "rev"))
    assert revisions[0][:4] == ["NAME", "CONFIG", "NAME", "GENERATION"]
    assert revisions[1] == ["r", "magika", "3", "True", "2"]
    everything = await kubectl(served, "get", "all")
    assert "pod/p" in everything
    assert "deployment.apps/d" in everything
    assert "revision.serving.knative.dev/r" in everything


async def test_kubectl_watches_a_list(served: Served, cluster: EmbeddedCluster) -> None:
    process = await asyncio.create_subprocess_exec(
        "kubectl", "--kubeconfig", str(served.kubeconfig), f"--cache-dir={served.kubeconfig.parent}/cache", "get",
        "secrets", "-w", stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        await cluster.create(SECRET, {**NAMES, "data": {}}, manager="test")
        head = (await process.stdout.readline()).split()
        first = (await process.stdout.readline()).split()
        await cluster.patch(SECRET, "keys", {"data": {"a": "MQ=="}}, "default", manager="test")
        second = (await process.stdout.readline()).split()
    finally:
        process.kill()
        await process.wait()
    assert head == [b"NAME", b"TYPE", b"DATA", b"AGE"]
    assert (first[:3], second[:3]) == ([b"keys", b"Opaque", b"0"], [b"keys", b"Opaque", b"1"])


async def test_kubectl_deletes_by_label_and_waits_until_a_namespace_is_gone(
    served: Served, cluster: EmbeddedCluster
) -> None:
    await kubectl(served, "create", "ns", "team-a")
    await kubectl(
        served, "replace", "-f", "-", stdin='{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}'
    )
    for name in ("one", "two"):
        await kubectl(served, "create", "secret", "generic", name, "-n", "team-a")
    await kubectl(served, "label", "secret", "one", "gone=yes", "-n", "team-a")

    assert "one" in await kubectl(served, "delete", "secret", "-l", "gone=yes", "-n", "team-a")
    assert [one["metadata"]["name"] for one in (await cluster.list(SECRET, "team-a")).items] == ["two"]
    await kubectl(served, "delete", "ns", "team-a")
    assert (await cluster.list(SECRET, "team-a")).items == []


async def test_kubectl_lists_what_there_is(served: Served) -> None:
    resources = await kubectl(served, "api-resources", "-o", "wide")
    shown = await kubectl(served, "version", "-o", "json")
    version = json.JSONDecoder().raw_decode(shown)[0]["serverVersion"]  # a warning about another minor may follow

    [pools] = [line for line in resources.splitlines() if line.startswith("warmpools")]
    assert pools.split()[1:4] == ["knodel.dev/v1alpha1", "true", "WarmPool"]
    assert pools.endswith("all,knodel")
    assert "podautoscalers" in resources
    assert "knodel" in version["gitVersion"]
    assert version["platform"].startswith("linux/")
    assert version["goVersion"].startswith("python3.")


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("create", "models"), "yes"),
        (("patch", "secrets"), "yes"),
        (("list", "pods"), "yes"),
        (("get", "pods/log"), "yes"),
        (("delete", "pods"), "no"),
        (("create", "deployments.apps"), "no"),
        (("get", "/version"), "yes"),
    ],
)
async def test_kubectl_knows_what_its_user_may_do(served: Served, arguments: tuple[str, str], answer: str) -> None:
    verb, resource = arguments
    shown = await kubectl(served, "auth", "can-i", verb, resource, code=0 if answer == "yes" else 1)
    assert shown.split()[0] == answer


async def test_kubectl_lists_what_its_user_may_do_and_who_it_is(served: Served) -> None:
    rights = await kubectl(served, "auth", "can-i", "--list")
    [models] = [line for line in rights.splitlines() if line.startswith("models.knodel.dev ")]
    assert "create delete get list patch update watch" in models
    assert "knodel" in await kubectl(served, "auth", "whoami")


async def test_kubectl_names_the_object_that_is_refused_or_missing(served: Served) -> None:
    invalid = json.dumps(model("UPPER", storageUri="file:///m"))
    refused = await kubectl(served, "create", "-f", "-", stdin=invalid, code=1)
    missing = await kubectl(served, "replace", "-f", "-", stdin=MANIFEST, code=1)

    assert 'The Model "UPPER" is invalid' in refused
    assert "NotFound" in missing
    assert "magika" in missing


async def test_kubectl_shows_where_the_cluster_is(served: Served) -> None:
    shown = await kubectl(served, "cluster-info")
    assert f"https://127.0.0.1:{served.tls_port}" in shown
    assert "No resources found" in await kubectl(served, "get", "services")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("model.spec", ("storageUri\t<string>", "maxReplicas\t<integer>")),
        ("model.spec.rollout", ("FIELDS:", "stepDuration\t<string>")),
        ("model.metadata.labels", ("FIELD: labels <map[string]string>",)),
        ("warmpool.spec", ("FIELDS:", "size")),
        ("eventsource.spec.auth", ("hmac\t<Object>",)),
        ("modelevent.spec", ("sequencetype\t<string>",)),
        ("ksvc.spec.template.spec.containers", ("image\t<string>",)),
        ("revision.spec", ("timeoutSeconds\t<integer>",)),
        ("kpa.spec", ("scaleTargetRef\t<Object>",)),
        ("secret", ("stringData\t<map[string]string>",)),
        ("pod.spec.containers.env", ("valueFrom\t<EnvVarSource>",)),
        ("deploy.spec", ("replicas\t<integer>",)),
        ("lease.spec", ("holderIdentity\t<string>",)),
    ],
)
async def test_kubectl_explains_fields(served: Served, path: str, words: tuple[str, ...]) -> None:
    explained = await kubectl(served, "explain", path)
    for word in words:
        assert word in explained


async def test_kubectl_explains_every_kind_with_all_fields(served: Served) -> None:
    explained = await kubectl(served, "explain", "model", "--recursive")
    assert "minReplicas" in explained
    assert "latestCreatedRevision" in explained


def pod() -> Object:
    """Return a Pod whose container failed twice."""
    waiting = {"name": "c", "ready": False, "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    return {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "here"},
        "status": {"phase": "Running", "containerStatuses": [waiting]},
    }


def deployment() -> Object:
    """Return a Deployment of which one of two replicas is ready."""
    labels = {"matchLabels": {"app": "d"}}
    template: Any = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"replicas": 2, "selector": labels, "template": template},
        "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1},
    }


def revision() -> Object:
    """Return a ready Revision."""
    labels = {"serving.knative.dev/configuration": "magika", "serving.knative.dev/configurationGeneration": "3"}
    return {
        "metadata": {"name": "r", "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"actualReplicas": 2, "conditions": [{"type": "Ready", "status": "True"}]},
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("get", "modelz"), 'the server doesn\'t have a resource type "modelz"'),
        (("get", "models.v9.knodel.dev"), 'the server doesn\'t have a resource type "models"'),
        (("describe", "models.nodel.dev"), 'the server doesn\'t have a resource type "models"'),
        (("delete", "modelz", "a"), 'the server doesn\'t have a resource type "modelz"'),
        (("explain", "modelz"), 'the server doesn\'t have a resource type "modelz"'),
        (("explain", "modelz", "--output=plaintext-openapiv2"), 'the server doesn\'t have a resource type "modelz"'),
        (("explain", "model", "--api-version=knodel.dev/v9"), "couldn't find resource for \"knodel.dev/v9"),
        (("explain", "model", "--output=plaintext-openapiv2"), "couldn't find resource for"),
    ],
)
async def test_a_mistyped_kind_gets_the_usual_message(served: Served, arguments: tuple[str, ...], message: str) -> None:
    assert message in await kubectl(served, *arguments, code=1)


@pytest.mark.parametrize("command", [("apply",), ("apply", "--server-side"), ("create",)])
@pytest.mark.parametrize("wrong", [("v1alpha1", "v9"), ('"Model"', '"Modelz"'), ("knodel.dev/", "nodel.dev/")])
async def test_a_manifest_of_a_mistyped_kind_gets_the_usual_message(
    served: Served, command: tuple[str, ...], wrong: tuple[str, str]
) -> None:
    refused = await kubectl(served, *command, "-f", "-", stdin=MANIFEST.replace(*wrong), code=1)
    assert 'no matches for kind "Model' in refused
    assert "openapi" not in refused
    assert "--validate" not in refused
