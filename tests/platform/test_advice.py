"""Test every command that messages recommend: type it literally on a running platform."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.base.objects import MODEL
from tests.platform.machine import Machine, machine
from tests.scenarios.world import infer_body
from tests.serving.cli.advice import ADVICE

ELSEWHERE = ("--kube-context", "--ray-service")
"""Options of commands that need a cluster, or a RayService."""
OWN_LIFE = ("knodel up", "knodel down", "knodel serve", "KNODEL_GATEWAY_HOSTS=")
"""Commands that start or end what the others need: they have tests of their own, in `test_life` and below."""
FINDINGS = {"knodel doctor": (0, 1)}
"""Exit codes beside 0 that mean that the command worked."""
RUN = [line for line in ADVICE.values() if not any(one in line for one in ELSEWHERE) and not line.startswith(OWN_LIFE)]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Yield a platform with a model in a rollout, a pool, an EventSource, and an event of its training."""
    folder = tmp_path_factory.mktemp("advice")
    with machine(folder) as running:
        running.up()
        artifact = running.artifact("double")
        (folder / "request.json").write_text(json.dumps(infer_body(1.0)))
        (folder / "model.onnx").symlink_to(artifact)
        spec = {"storageUri": Path(artifact).as_uri()}
        model = {"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": {"name": "second"}, "spec": spec}
        (folder / "models.yaml").write_text(json.dumps(model))
        running.environment["HF_TOKEN"] = "secret"
        running.run("deploy", "iris", "--uri", artifact)
        running.run("pool", "set", "fast", "--size", "0")
        running.run(
            "events",
            "allow",
            "ci/train",
            "--models",
            "iris",
            "--storage-prefix",
            Path(artifact).as_uri(),
        )
        running.run(
            "events", "send", "iris", "--id", "train-42", "--source", "ci/train", "--uri", Path(artifact).as_uri()
        )
        yield running


@pytest.mark.parametrize("line", RUN)
def test_an_advised_command_works_when_it_is_typed(platform: Machine, line: str) -> None:
    program, *arguments = shlex.split(line)
    assert program == "knodel"
    if "prod" in arguments:
        platform.complete("env", "add", "prod", "--state", str(platform.folder / "state"))  # refused if it is there
    if arguments[0] == "abort":
        platform.run("deploy", "iris", "--uri", platform.artifact("slow"), "--rollout", "--no-wait")

    files = {"@request.json": f"@{platform.folder}/request.json"} | {
        name: str(platform.folder / name) for name in ("./model.onnx", "models.yaml")
    }
    done = platform.complete(*(files.get(argument, argument) for argument in arguments))

    assert done.returncode in FINDINGS.get(line, (0,)), done.stdout + done.stderr
