"""A promotion from the platform of this machine to a real cluster: the bytes are uploaded, and rolled out there."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.test_command import SMALL, Shell, knodel
from tests.cluster.test_uploads import store, uploads
from tests.platform.machine import KNODEL, machine
from tests.support import models
from tests.support.kubernetes import KubeTarget

__all__ = ["knodel", "store", "uploads"]
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


def deploy(envs: Command, folder: Path, name: str, artifact: str, version: str) -> str:
    """Deploy a model file in `dev`, and return the digest of its version."""
    metadata = {"name": name, "namespace": "default"}
    spec = {**SMALL, "storageUri": models.write(folder, artifact).as_uri(), "version": version}
    model = {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": metadata, "spec": spec}
    file = folder / "model.json"
    file.write_text(json.dumps(model))
    envs("deploy", "-f", str(file), "--env", "dev")
    found: dict[str, Any] = json.loads(envs("get", name, "--env", "dev", "-o", "json"))
    return str(found["status"]["history"][-1]["digest"])


def test_a_version_of_this_machine_is_uploaded_and_rolled_out(envs: Command, uploads: Shell, tmp_path: Path) -> None:
    digest = deploy(envs, tmp_path, "magika", "triple", "7")
    uploads("deploy", "magika", "--min", "1")

    done = envs("--env", "dev", "promote", "magika", "--to", "prod")  # where the model serves another file
    assert "of dev is magika-" in done and "rollout progressing, step 1: 10 %" in done
    assert "spec.storageUri" in done and "minReplicas" not in done and "resources" not in done
    envs("promote", "magika", "--env", "prod")

    model = uploads.model()
    assert model["spec"]["storageUri"].startswith("gs://models/team/sha256/") and model["spec"]["minReplicas"] == 1
    newest = model["status"]["history"][-1]
    assert (newest["digest"], newest["version"]) == (digest, "7")
    assert (newest["cause"]["by"], newest["cause"]["source"]) == ("promotion", "dev")
    assert uploads.answer() == 63.0


def test_a_model_that_is_new_there_gets_the_fields_of_the_source(envs: Command, uploads: Shell, tmp_path: Path) -> None:
    digest = deploy(envs, tmp_path, "fresh", "half", "1")

    assert "of dev is fresh-00001 in prod" in envs("--env", "dev", "promote", "fresh", "--to", "prod")

    model = json.loads(envs("get", "fresh", "--env", "prod", "-o", "json"))
    assert (model["spec"]["resources"], model["spec"]["maxReplicas"]) == (SMALL["resources"], 1)
    assert (model["spec"]["digest"], model["spec"]["rollout"]) == (digest, {})
    assert "already: nothing was changed" in envs("--env", "dev", "promote", "fresh", "--to", "prod")
