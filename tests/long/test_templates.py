"""Each template of `knodel init`: trained, tested, served by `knodel dev`, and deployed on a platform of this machine.

The packages of the template `huggingface` are in a folder of the cache. Its weights are tiny ones, and so are those of
`llm`, written here in place of a download.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from serving.cli.projects import LLM, NAMES
from tests.platform.machine import Machine, machine
from tests.support.dev import Dev
from tests.testbed import paths

ROOT = Path(__file__).parents[2]
PACKAGES = ("tokenizers==0.23.3",)
"""Without what they need beyond those: tokenizers needs the Hub's client only to download."""
WEIGHTS = {"huggingface": ("small_classifier", "model"), "llm": ("small_gguf", "weights.gguf")}
"""The module of tests.support that writes the weights of a template, and where."""
TRAINED = ("sklearn", "onnx")

pytestmark = pytest.mark.timeout(600)


def folder_of_packages() -> Path:
    """Return a folder with PACKAGES for this Python, installed when it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or paths.home() / ".cache")
    name = "-".join((*PACKAGES, sysconfig.get_python_version()))
    folder = cache / "knodel" / "templates" / name.replace("==", "_")
    if not folder.exists():
        made = folder.with_name(f"{folder.name}.{os.getpid()}")  # whole at once
        uv = shutil.which("uv") or str(Path(f"{sys.prefix}-uv") / "bin" / "uv")
        install = [uv, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable, "--target", str(made)]
        subprocess.run([*install, *PACKAGES], check=True)
        try:
            made.rename(folder)
        except OSError:  # another test run was faster
            shutil.rmtree(made)
    return folder


@pytest.fixture(scope="module", autouse=True)
def packages() -> Iterator[None]:
    """Let Python find the packages, here, in the projects and on the platform."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(folder_of_packages()), str(ROOT))))
        yield


@pytest.fixture(scope="module")
def platform(packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Run a platform that allows code."""
    with machine(tmp_path_factory.mktemp("platform")) as made:
        made.up()
        made.run("namespace", "default", "--label", "knodel.dev/allow-code=true")
        yield made


@pytest.fixture
def project(platform: Machine, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Create the project of a template, with its trained or tiny weights."""
    template = str(request.param)
    folder = tmp_path / template
    platform.run("init", str(folder), "--template", template)
    if template in TRAINED:
        subprocess.run([sys.executable, "train.py"], cwd=folder, check=True)
    elif template in WEIGHTS:
        module, name = WEIGHTS[template]
        subprocess.run([sys.executable, "-m", f"tests.support.{module}", str(folder / name)], cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("project", [LLM], indirect=True)
def test_a_language_model_is_deployed_and_asked(platform: Machine, project: Path) -> None:
    manifest = project / "model.yaml"
    model = yaml.safe_load(manifest.read_text())
    model["spec"] |= {"storageUri": (project / "weights.gguf").as_uri(), "llm": {"contextLength": 256}}
    manifest.write_text(yaml.safe_dump(model))
    platform.run("deploy", "-f", str(manifest), "--wait")
    environ = {**os.environ, "OPENAI_BASE_URL": f"http://127.0.0.1:{platform.port}/openai/v1"}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=project, env=environ, check=True
    )
    asked = [sys.executable, "ask.py", "Name", "three", "colours."]
    assert subprocess.run(asked, cwd=project, env=environ, check=True, capture_output=True, text=True).stdout.strip()
    assert platform.run("chat", "llm", "hi", "--max-tokens", "8").strip()
    platform.run("delete", "llm")


@pytest.mark.parametrize("project", [name for name in NAMES if name != LLM], indirect=True)
def test_a_project_is_tested_served_and_deployed(platform: Machine, project: Path) -> None:
    name, example = project.name, json.loads((project / "model" / "example.json").read_text())
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=project, check=True)

    with Dev(project / "model", name=name) as dev:
        dev.wait_for("version 1 serves on")
        dev.wait_for("answers 200 in")
        status, served = dev.post(example, "infer")
        assert status == 200

    platform.run("deploy", "-f", str(project / "model.yaml"))
    deployed = json.loads(platform.run("predict", name, "--example"))
    assert [one["name"] for one in deployed["outputs"]] == [one["name"] for one in served["outputs"]]
    if name == "huggingface":
        assert deployed["outputs"][0]["data"] == ["POSITIVE", "NEGATIVE"]
    platform.run("deploy", "-f", str(project / "model.yaml"))  # the same bytes: nothing changes
    assert len(platform.run("history", name).splitlines()) == 2
    platform.run("delete", name)
