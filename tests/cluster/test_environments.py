"""A promotion from the platform of this machine to a real cluster: the bytes are uploaded, and rolled out there."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.test_command import SMALL, Shell, files, knodel
from tests.cluster.test_uploads import store, uploads
from tests.platform.machine import KNODEL, machine
from tests.support import models
from tests.support.kubernetes import KubeTarget

__all__ = ["files", "knodel", "store", "uploads"]
pytestmark = pytest.mark.timeout(300)
Command = Callable[..., str]


@pytest.fixture
def envs(uploads: Shell, target: KubeTarget, tmp_path: Path) -> Iterator[Command]:
    """The command with the environments `dev`, a platform of this machine, and `prod`, a namespace of the cluster."""
    variables = os.environ | {"XDG_CONFIG_HOME": str(tmp_path / "config"), "KUBECONFIG": str(target.kubeconfig)}
    variables.pop("KNODEL_STATE", None)

    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [*KNODEL, *arguments], env=variables, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    with machine(tmp_path) as here:
        here.up()
        run("env", "add", "dev", "--state", str(here.state))
        run("env", "add", "prod", "--kube-context", target.context, "--namespace", uploads.namespace)
        yield run


def deploy(envs: Command, folder: Path, name: str, version: str) -> str:
    """Deploy a model file in `dev`, and return the digest of its version."""
    path = models.write(folder, name)
    metadata = {"name": "magika", "namespace": "default"}
    spec = {**SMALL, "storageUri": path.as_uri(), "version": version}
    file = folder / "model.json"
    file.write_text(
        json.dumps({"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": metadata, "spec": spec})
    )
    envs("deploy", "-f", str(file), "--env", "dev")
    found: dict[str, Any] = json.loads(envs("get", "magika", "--env", "dev", "-o", "json"))
    return str(found["status"]["history"][-1]["digest"])


def test_a_version_of_this_machine_is_uploaded_and_rolled_out(envs: Command, uploads: Shell, tmp_path: Path) -> None:
    first = deploy(envs, tmp_path, "triple", "1")

    assert "of dev is magika-00001 in prod" in envs("--env", "dev", "promote", "magika", "--to", "prod")
    model = uploads.model()
    assert model["spec"]["digest"] == first and model["spec"]["storageUri"].startswith("gs://models/team/sha256/")
    assert model["spec"]["resources"] == SMALL["resources"]
    assert uploads.answer() == 63.0

    second = deploy(envs, tmp_path, "double", "2")
    uploads("deploy", "magika", "--min", "1")
    done = envs("--env", "dev", "promote", "magika", "--to", "prod")
    assert "rollout progressing, step 1: 10 %" in done and "minReplicas" not in done
    assert envs("diff", "--env", "dev", "--env", "prod", "magika", code=1).count("digest") == 0
    envs("promote", "magika", "--env", "prod")

    newest = uploads.model()["status"]["history"][-1]
    assert (newest["digest"], newest["version"]) == (second, "2")
    assert (newest["cause"]["by"], newest["cause"]["source"]) == ("promotion", "dev")
    assert uploads.model()["spec"]["minReplicas"] == 1
    assert uploads.answer() == 42.0
