"""Two platforms of this machine as environments: promotions move the bytes, and roll them out judged."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import knodel
from tests.platform.machine import KNODEL, PATIENCE, machine
from tests.scenarios.world import infer_body
from tests.support import models

QUICK = {"steps": [50, 100], "stepDuration": "3s", "judge": {"interval": "1s", "maxLatencyRatio": 100}}


class Environments:
    """The environments `dev` and `prod`, each a platform of this machine."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.platforms = {}
        for name in ("dev", "prod"):
            (folder / name).mkdir()
            self.platforms[name] = stack.enter_context(machine(folder / name))
            self.platforms[name].up()
        self.variables = os.environ | {"XDG_CONFIG_HOME": str(folder / "config")}
        self.variables.pop("KNODEL_STATE", None)
        for name, platform in self.platforms.items():
            self("env", "add", name, "--state", str(platform.state))

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Run a command and return its output, or its errors for another code than 0."""
        done = subprocess.run(
            [*KNODEL, *arguments], env=self.variables, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout if code == 0 or not done.stderr else done.stderr

    def model(self, env: str, name: str = "churn") -> dict[str, Any]:
        """Return a Model."""
        found: dict[str, Any] = json.loads(self("get", name, "--env", env, "-o", "json"))
        return found

    def answer(self, env: str) -> float:
        """Return what the model answers to 1.0: its factor."""
        return self.platforms[env].ask("churn")


@pytest.fixture(scope="module")
def envs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environments]:
    """Both environments."""
    with ExitStack() as stack:
        yield Environments(tmp_path_factory.mktemp("envs"), stack)


def test_a_version_moves_by_its_bytes_and_is_rolled_out_judged(envs: Environments) -> None:
    path = models.write(envs.folder, "double")
    envs("deploy", "churn", "--env", "dev", "--uri", str(path), "--version", "1", "--min", "1")
    path.unlink()  # the kept copy is what moves

    assert "of dev is churn-00001 in prod" in envs("--env", "dev", "promote", "churn", "--to", "prod")
    assert envs.answer("prod") == 2.0
    assert envs("diff", "--env", "dev", "--env", "prod", "churn", code=1).count("\n+  ") == 1  # the rollout

    settings = {"spec": {"rollout": QUICK, "maxReplicas": 3}}
    file = envs.folder / "settings.json"
    file.write_text(json.dumps({"apiVersion": "knodel.dev/v1alpha1", "kind": "Model",
                                "metadata": {"name": "churn"}, **settings}))  # fmt: skip
    envs("deploy", "-f", str(file), "--env", "prod")
    other = models.write(envs.folder, "triple")
    envs("deploy", "churn", "--env", "dev", "--uri", str(other), "--version", "2")

    stop = threading.Event()
    load = threading.Thread(target=_ask_until, args=(envs, stop))
    load.start()
    try:
        done = envs("--env", "dev", "promote", "churn", "--to", "prod", "--timeout", "80s")
        assert 'spec.version: "1" → "2"' in done and "maxReplicas" not in done and "spec.rollout" not in done
        _wait_for_promotion(envs)
    finally:
        stop.set()
        load.join()

    source, target = envs.model("dev"), envs.model("prod")
    assert target["spec"]["digest"] == source["spec"]["digest"] and target["spec"]["maxReplicas"] == 3
    newest = target["status"]["history"][-1]
    assert (newest["cause"]["by"], newest["cause"]["source"]) == ("promotion", "dev")
    assert newest["cause"]["id"].startswith("default/churn-00002@")
    assert newest["outcome"] == "promoted" and newest["version"] == "2"
    assert "promotion from dev" in envs("history", "churn", "--env", "prod")
    assert envs.answer("prod") == 3.0
    assert "already: nothing was changed" in envs("--env", "dev", "promote", "churn", "--to", "prod")


def _ask_until(envs: Environments, stop: threading.Event) -> None:
    """Send requests to the model in `prod`, one after another."""

    from serving.client.http import ServerAddress  # noqa: F401 - the gateway is asked over plain HTTP below

    port = envs.platforms["prod"].port
    body = json.dumps(infer_body(1.0))
    while not stop.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", "/namespaces/default/models/churn/v2/models/churn/infer", body)
        connection.getresponse().read()
        connection.close()


def _wait_for_promotion(envs: Environments) -> None:
    for _ in range(60):
        history = envs.model("prod")["status"]["history"]
        if history[-1]["outcome"] == "promoted" and history[-1]["version"] == "2":
            return
        envs("wait", "churn", "--env", "prod", "--timeout", "5s")
    raise AssertionError(envs("explain", "churn", "--env", "prod"))


def test_a_folder_and_an_archive_move_too(envs: Environments) -> None:
    folder = envs.folder / "folder"
    folder.mkdir()
    models.write(folder, "double")
    archive = envs.folder / "packed.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(models.write(envs.folder / "folder", "double"), "model.onnx")

    for name, path in (("folder", folder), ("packed", archive)):
        envs("deploy", name, "--env", "dev", "--uri", str(path))
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        envs("--env", "dev", "promote", name, "--to", "prod")

        digests = [envs.model(env, name)["status"]["history"][-1]["digest"] for env in ("dev", "prod")]
        assert digests[0] == digests[1]


def test_what_cannot_be_promoted_is_explained(envs: Environments) -> None:
    path = models.write(envs.folder, "half")  # whose bytes prod does not have
    envs("deploy", "split", "--env", "dev", "--uri", str(path))
    envs("deploy", "split", "--env", "dev", "--version", "b", "--canary", "10")

    assert "its traffic is split" in envs("--env", "dev", "promote", "split", "--to", "prod", code=2)
    assert "no environment 'stage'" in envs("--env", "dev", "promote", "split", "--to", "stage", code=2)
    assert "the environment of the model itself" in envs("--env", "dev", "promote", "split", "--to", "dev", code=2)
    assert "model absent not found" in envs("--env", "dev", "promote", "absent", "--to", "prod", code=3)
    assert "--rollout has an effect only with --to" in envs("--env", "dev", "promote", "split", "--rollout", code=2)

    envs("promote", "split", "--env", "dev")
    shutil.rmtree(envs.platforms["dev"].state / "kept" / "files")
    assert "has no copy with the digest" in envs("--env", "dev", "promote", "split", "--to", "prod", code=2)
    assert "not found" in envs("get", "split", "--env", "prod", code=3)


def test_environments_without_differences_have_exit_code_0(envs: Environments) -> None:
    assert envs("diff", "--env", "prod", "--env", "prod") == ""
    assert "model absent is in neither environment" in envs("diff", "--env", "dev", "--env", "prod", "absent", code=3)
    assert "--env dev --env prod" in envs("diff", "--env", "dev", code=2)
    assert "only one" in envs("diff", "--env", "dev", "--state", "/s", "-f", "x.yaml", code=2)


def test_the_python_package_acts_on_an_environment(envs: Environments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", envs.variables["XDG_CONFIG_HOME"])
    path = models.write(envs.folder, "double")
    envs("deploy", "package", "--env", "prod", "--uri", str(path))

    assert knodel.Client(env="prod").get("package").name == "package"
    with pytest.raises(knodel.KnodelError, match="known ones are dev, prod"):
        knodel.Client(env="stage")
