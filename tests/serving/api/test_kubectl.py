"""kubectl itself against the control API; skipped where no kubectl is installed."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest

from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.secrets import values_of
from clusters.objects import MODEL, SECRET
from tests.scenarios.world import model
from tests.serving.api.conftest import Served

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

MANIFEST = json.dumps(model("magika", storageUri="file:///m", minReplicas=1))


async def kubectl(served: Served, *arguments: str, stdin: str = "", code: int = 0) -> str:
    """What kubectl prints; its exit code must be `code`."""
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        "--kubeconfig",
        str(served.kubeconfig),
        f"--cache-dir={served.kubeconfig.parent}/cache",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(stdin.encode())
    assert process.returncode == code, (out, err)
    return out.decode() + err.decode()


async def test_kubectl_applies_on_the_server_side_and_lists(served: Served, cluster: EmbeddedCluster) -> None:
    applied = await kubectl(served, "apply", "--server-side", "-f", "-", stdin=MANIFEST)
    again = await kubectl(served, "apply", "--server-side", "-f", "-", stdin=MANIFEST)
    listed = await kubectl(served, "get", "models")
    wide = await kubectl(served, "get", "models", "-A", "-o", "wide")

    assert "serverside-applied" in applied
    assert "serverside-applied" in again
    assert listed.split()[:3] == ["NAME", "READY", "REASON"]
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
    generic = ("create", "secret", "generic", "keys", "--from-literal=HF_TOKEN=s3cret")
    made = await kubectl(served, *generic, "--dry-run=client", "-o", "json")  # else its create speaks protobuf
    await kubectl(served, "apply", "-f", "-", stdin=made)
    listed = await kubectl(served, "get", "secrets")
    described = await kubectl(served, "describe", "secret", "keys")

    assert values_of(await cluster.get(SECRET, "keys", "default")) == {"HF_TOKEN": b"s3cret"}
    assert listed.split()[:5] == ["NAME", "TYPE", "DATA", "AGE", "keys"]
    assert "HF_TOKEN:  6 bytes" in described
    assert "s3cret" not in listed + described


async def test_kubectl_lists_what_there_is(served: Served) -> None:
    assert "podautoscalers" in await kubectl(served, "api-resources")
    assert "knodel" in await kubectl(served, "version", "-o", "json")
