"""The base installation on another system than Linux: each verb that acts on a cluster works over TLS."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from clusters.base.objects import CONFIG_MAP, MODEL, NAMESPACE
from clusters.embedded.cluster import EmbeddedCluster
from tests.serving.control_api.conftest import Served
from tests.serving.storage.uploads.registry import LOGIN, running_registry
from tests.support.portable import ROOT

MODEL_YAML = {
    "apiVersion": "knodel.dev/v1alpha1",
    "kind": "Model",
    "metadata": {"name": "second"},
    "spec": {"storageUri": "https://models.test/second.onnx", "modelFormat": "onnx"},
}


INFERENCE_SERVICE = {
    "apiVersion": "serving.kserve.io/v1beta1",
    "kind": "InferenceService",
    "metadata": {"name": "third"},
    "spec": {"predictor": {"onnx": {"storageUri": "https://models.test/third.onnx"}}},
}


@dataclass(frozen=True)
class Result:
    """The result of one command."""

    code: int
    out: str
    err: str


async def run(kubeconfig: Path, home: Path, *commands: list[str]) -> list[Result]:
    """Run the commands in a process as on another system."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.portable", cwd=ROOT, env=environment,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate(json.dumps(commands).encode())
    assert process.returncode == 0, err.decode()
    made: dict[str, Any] = json.loads(out)
    assert {"msgspec", "numpy", "aiohttp", "fcntl"}.isdisjoint(made["modules"])
    return [Result(**one) for one in made["results"]]


async def test_the_verbs_of_a_cluster_work_without_compiled_packages_and_unix(
    cluster: EmbeddedCluster, served: Served, tmp_path: Path
) -> None:
    await cluster.create(
        NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}, manager="test"
    )
    file = tmp_path / "second.yaml"
    file.write_text(yaml.safe_dump(MODEL_YAML))
    service = tmp_path / "isvc.yaml"
    service.write_text(yaml.safe_dump(INFERENCE_SERVICE))
    context = yaml.safe_load(served.kubeconfig.read_text())["current-context"]

    def at(verb: str) -> list[str]:
        return [*verb.split(), "--kube-context", context]

    good = [
        at("deploy first --uri https://models.test/first.onnx --format onnx --no-wait"),
        at(f"deploy -f {file} --no-wait"),
        at("list -o json"),
        at("list"),
        at("get first -o yaml"),
        at("describe first"),
        at("history first"),
        at("explain first"),
        at("deploy first --max 3 --no-wait"),
        at("deploy first --canary 10 --no-wait"),
        ["render", "-f", str(file)],
        ["import", "-f", str(service)],
        at("pool set small --format onnx --size 1"),
        at("pool list"),
        at("namespace other"),
        at("delete second"),
        ["--help"],
        ["completion", "bash"],
        ["config", "--describe"],
    ]
    for command, done in zip(good, await run(served.kubeconfig, tmp_path, *good), strict=True):
        assert (done.code, "needs" in done.err) == (0, False), (command, done)

    spec = (await cluster.get(MODEL, "first", "default"))["spec"]
    assert spec["storageUri"] == "https://models.test/first.onnx"


async def test_local_files_are_uploaded_to_a_registry(cluster: EmbeddedCluster, served: Served, tmp_path: Path) -> None:
    for name in ("default", "knodel-system"):
        await cluster.create(NAMESPACE, {"metadata": {"name": name}}, manager="test")
    (tmp_path / "iris.onnx").write_bytes(b"a model")
    (tmp_path / ".docker").mkdir()
    context = yaml.safe_load(served.kubeconfig.read_text())["current-context"]
    deploy = ["deploy", str(tmp_path / "iris.onnx"), "--no-wait", "--kube-context", context]
    for registry in running_registry():
        login = {"auths": {registry.host: {"auth": LOGIN}}}
        (tmp_path / ".docker" / "config.json").write_text(json.dumps(login))
        settings = json.dumps({"artifacts": {"prefix": f"oci://{registry.host}/team/models"}})
        metadata = {"name": "knodel-config", "namespace": "knodel-system"}
        await cluster.create(CONFIG_MAP, {"metadata": metadata, "data": {"config.yaml": settings}}, manager="test")
        (done,) = await run(served.kubeconfig, tmp_path, deploy)
        assert done.code == 0, done.err
        spec = (await cluster.get(MODEL, "iris", "default"))["spec"]
        assert spec["storageUri"] == f"oci://{registry.host}/team/models@{spec['digest']}"
        assert spec["digest"] in registry.manifests
    assert list((tmp_path / ".cache" / "knodel" / "uploads").iterdir()) == []


async def test_what_another_system_does_not_have_is_explained(served: Served, tmp_path: Path) -> None:
    context = ["--kube-context", yaml.safe_load(served.kubeconfig.read_text())["current-context"]]
    here, up, events, install = await run(
        served.kubeconfig, tmp_path,
        ["list"], ["up"], ["events", "list", *context], ["install", *context],
    )  # fmt: skip

    assert "a platform of this machine needs Linux, and this is macOS: use --kube-context NAME" in here.err
    assert "`knodel up` works on Linux, and this is macOS" in up.err
    for done in (events, install):
        assert "is not installed: `" in done.err and "knodel[kubernetes]" in done.err
    assert all(done.code == 1 and len(done.err.splitlines()) == 1 for done in (here, up, events, install))
