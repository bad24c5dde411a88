"""The command with `--kube-context` on a real cluster: every verb, in one life of a model; and without the rights."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.scenarios.world import infer_body
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KubeTarget, account_token
from tests.support.terminal import KNODEL

PATIENCE = 180  # s for one command
SMALL = {"resources": {"cpu": "50m", "memory": "256Mi"}, "maxReplicas": 1}
REQUEST = json.dumps(infer_body(21.0))
ARTIFACTS = ("double", "triple")
FACTORS = {"double": 2.0, "triple": 3.0}


OF_THE_CLUSTER = ("namespace", "config", "doctor", "install", "uninstall")
"""Verbs that take no namespace."""


@dataclass(frozen=True)
class Done:
    """What a command answered."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Shell:
    """The command on one context and namespace."""

    target: KubeTarget
    namespace: str
    kubeconfig: Path | None = None

    def __call__(self, *arguments: str, stdin: str = "", code: int | None = 0) -> Done:
        """Run a command to its end; with another exit code than `code` (None: any) the test fails."""
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig or self.target.kubeconfig)}
        within = (
            () if arguments[0] in ("namespace", "config", "doctor", "install", "uninstall") else ("-n", self.namespace)
        )
        words = [*KNODEL, *arguments, "--kube-context", self.target.context, *within]
        ran = subprocess.run(
            words, env=environment, input=stdin, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert code in (None, ran.returncode), f"{arguments}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
        assert "Traceback" not in ran.stderr
        return Done(ran.returncode, ran.stdout, ran.stderr)

    def model(self) -> Any:
        """The Model `magika` as it is stored."""
        return json.loads(self("get", "magika", "-o", "json").out)

    def answer(self, *options: str) -> float:
        """What `magika` makes of 21."""
        return float(json.loads(self("predict", "magika", "-d", REQUEST, *options).out)["outputs"][0]["data"][0])


def document(uri: str, **spec: Any) -> str:
    """The Model `magika` as a person writes it."""
    made = {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": {"name": "magika"}}
    return yaml.safe_dump({**made, "spec": {"storageUri": uri, **SMALL, **spec}})


@pytest.fixture(scope="module")
def knodel(target: KubeTarget, files: ArtifactServer) -> Iterator[Shell]:
    """The command in a namespace of its own, with the Model `magika`, whose first version doubles."""
    shell = Shell(target, f"test-{uuid.uuid4().hex[:10]}")
    shell("namespace", shell.namespace)
    shell("deploy", "-f", "-", stdin=document(files.uri("double"), version="1"))
    yield shell
    for model in json.loads(shell("list", "-o", "json").out)["items"]:
        shell("delete", model["metadata"]["name"], "--no-wait", code=None)


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("list", ["magika", "True", "magika-00001=100"]),
        ("list -A", ["NAMESPACE", "magika"]),
        ("get magika", ["Ready", "True"]),
        ("describe magika", ["RoutesReady", "magika-00001", "100 %"]),
        ("history magika", ["magika-00001", "promoted", "user"]),
        ("explain magika", ["all to the latest ready version", "Replicas:"]),
        ("wait magika", ["model magika is ready at http://magika."]),
        ("config", ["gateway:", "domain:"]),
        ("doctor", ["API server", "Knative", "Knodel", "ingress"]),
    ],
)
def test_a_model_and_its_cluster_are_shown(knodel: Shell, verb: str, words: list[str]) -> None:
    done = knodel(*verb.split())

    assert all(word in done.out for word in words), done.out
    assert done.err == ""


def test_a_prediction_is_answered_by_the_model(knodel: Shell) -> None:
    assert knodel.answer() == 42.0
    assert "magika-00001" in knodel("predict", "magika", "-d", REQUEST, "--timing").err


def test_the_log_is_the_model_servers_and_not_that_of_knatives_proxy(knodel: Shell) -> None:
    knodel.answer()  # a replica runs

    out = knodel("logs", "magika").out

    assert out.strip()
    assert "Starting queue-proxy" not in out
    assert len(knodel("logs", "magika", "--tail", "1").out.splitlines()) == 1


def test_what_is_rendered_has_the_images_of_the_cluster(knodel: Shell, files: ArtifactServer) -> None:
    image = yaml.safe_load(knodel("config").out)["server"]["image"]

    rendered = yaml.safe_load(knodel("render", "-f", "-", stdin=document(files.uri("double"))).out)

    assert rendered["items"][0]["spec"]["template"]["spec"]["containers"][0]["image"] == image


def test_a_diff_changes_nothing_and_tells_what_would_change(knodel: Shell, files: ArtifactServer) -> None:
    before = knodel.model()["metadata"]["generation"]
    same = document(files.uri("double"), version="1")

    assert knodel("diff", "-f", "-", stdin=same).out == ""
    changed = knodel("diff", "-f", "-", stdin=document(files.uri("double"), version="1", minReplicas=1), code=1)
    assert "+  minReplicas: 1" in changed.out
    assert knodel.model()["metadata"]["generation"] == before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("deploy", "magika", "--min", "9"), 2, "spec.minReplicas"),
        (("deploy", "magika", "--min", "9", "--dry-run"), 2, "spec.minReplicas"),
        (("deploy", "magika", "--uri", "./here.onnx"), 2, "artifacts.prefix"),
        (("traffic", "magika", "latest=50"), 2, "sum to 50"),
        (("traffic", "magika", "magika-00009=100"), 3, "magika-00009"),
        (("rollback", "magika", "--to", "magika-00009"), 3, "magika-00009"),
        (("predict", "magika", "-d", REQUEST, "--tag", "green"), 3, "tag green"),
        (("predict", "magika", "-d", '{"inputs": 7}'), 2, "magika responded with 400"),
        (("get", "nobody"), 3, "nobody"),
        (("logs", "nobody"), 3, "nobody"),
        (("delete", "nobody"), 3, "nobody"),
    ],
)
def test_what_cannot_be_is_one_line_and_changes_nothing(
    knodel: Shell, arguments: tuple[str, ...], code: int, words: str
) -> None:
    before = knodel.model()["metadata"]["generation"]

    done = knodel(*arguments, code=code)

    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    assert words in done.err
    assert knodel.model()["metadata"]["generation"] == before


def test_a_field_that_the_api_server_does_not_know_is_refused(knodel: Shell, files: ArtifactServer) -> None:
    done = knodel("deploy", "-f", "-", stdin=document(files.uri("double"), colour="red"), code=2)

    assert "spec.colour" in done.err


@pytest.mark.fault("C4")
def test_of_two_changes_at_once_none_is_lost_in_silence(knodel: Shell) -> None:
    def change(keep: int) -> Done:
        return knodel("deploy", "magika", "--max", str(keep), "--no-wait", code=None)

    with ThreadPoolExecutor() as pool:
        done = list(pool.map(change, (1, 2, 3, 4)))

    won = [most for most, one in zip((1, 2, 3, 4), done, strict=True) if one.code == 0]
    assert knodel.model()["spec"]["maxReplicas"] in won
    assert all("another client" in one.err for one in done if one.code), [one.err for one in done]
    knodel("deploy", "magika", "--max", "1")


def test_versions_are_split_tagged_promoted_and_rolled_back(knodel: Shell, files: ArtifactServer) -> None:
    pinned = [{"revision": "magika-00001", "percent": 100}, {"latest": True, "percent": 0, "tag": "blue"}]
    knodel("deploy", "-f", "-", stdin=document(files.uri("triple"), version="2", traffic=pinned))

    assert (knodel.answer(), knodel.answer("--tag", "blue")) == (42.0, 63.0)
    newest = knodel.model()["status"]["latestReadyRevision"]
    assert newest in knodel("traffic", "magika", "magika-00001=50", "latest=50").out
    assert {knodel.answer() for _ in range(20)} == {42.0, 63.0}
    knodel("promote", "magika")
    assert {knodel.answer() for _ in range(5)} == {63.0}
    knodel("rollback", "magika")
    assert {knodel.answer() for _ in range(5)} == {42.0}
    assert knodel.model()["spec"]["traffic"] == [{"revision": "magika-00001", "percent": 100}]


def test_a_caller_who_may_only_look_is_told_which_right_is_missing(
    knodel: Shell, target: KubeTarget, tmp_path: Path
) -> None:
    with viewer_config(target, knodel.namespace, tmp_path) as kubeconfig:
        viewer = Shell(target, knodel.namespace, kubeconfig)
        assert "magika" in viewer("list").out
        refused = viewer("deploy", "magika", "--max", "2", code=1)
        found = json.loads(viewer("doctor", "-o", "json", code=1).out)

    assert 'cannot patch resource "models"' in refused.err
    assert [one["check"] for one in found if not one["ok"]] == ["rights"]


@contextmanager
def viewer_config(target: KubeTarget, namespace: str, folder: Path) -> Iterator[Path]:
    """A kubeconfig of a ServiceAccount that has the ClusterRole `view` in the namespace."""
    known = yaml.safe_load(target.kubeconfig.read_text())
    for context in known["contexts"]:
        context["context"]["user"] = "viewer"
    path = folder / "kubeconfig"
    with account_token(target, namespace, "viewer", "view") as token:
        known["users"] = [{"name": "viewer", "user": {"token": token}}]
        path.write_text(yaml.safe_dump(known))
        yield path


def test_a_deleted_model_is_gone_with_its_replicas(knodel: Shell, files: ArtifactServer) -> None:
    assert knodel("delete", "magika", "--timeout", "150s").out == "model magika deleted\n"

    assert knodel("get", "magika", code=3).out == ""
    assert json.loads(knodel("list", "-o", "json").out)["items"] == []
