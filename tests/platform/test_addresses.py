"""Test that every printed address works as printed, in Python and in a shell."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.platform.machine import KNODEL, Machine, machine
from tests.scenarios.world import infer_body

PATIENCE = 30  # s for one request


def urls(text: str) -> set[str]:
    """Return the model addresses in a text, without the host form, which may not resolve."""
    shown = "\n".join(line for line in text.splitlines() if "Host URL" not in line)
    return set(re.findall(r"http://[^\s']+", shown)) - {"http://"}


def paste(line: str) -> Any:
    """Run a command line in a shell; return its output as JSON."""
    done = subprocess.run(
        ["/bin/sh", "-c", line.replace("curl ", "curl -sS --fail-with-body ", 1)],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def example_of(text: str) -> str:
    """Return the curl line in a text."""
    (line,) = re.findall(r"curl http:.*", text)
    return str(line)


def check_printed(here: Machine, name: str, *options: str) -> None:
    """Check that the addresses of every verb that shows the model work."""
    for verb in ("get", "describe"):
        text = here.run(verb, name, *options)
        assert paste(example_of(text))["name"] == name
        assert urls(text)
    listed = here.run("list", *options)
    found = urls(listed) | urls(here.run("wait", name, *options))
    assert len(found) == 1, found
    base = found.pop()
    answer = httpx.post(f"{base}/v2/models/{name}/infer", json=infer_body(4.0), timeout=PATIENCE)
    assert (answer.status_code, answer.json()["outputs"][0]["data"]) == (200, [8.0])


def test_every_printed_address_works_from_python_and_from_curl(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        deployed = here.run("deploy", "iris", "--uri", here.artifact("double"))
        here.run("namespace", "team")
        here.run("deploy", "iris", "--uri", here.artifact("double"), "-n", "team")

        answer = paste(example_of(deployed))
        assert answer["outputs"][0]["data"] == [0.0], "the line that deploy prints is an inference"
        assert f"http://iris.default.localhost:{here.port} (" in deployed
        by_host = f"curl http://iris.default.localhost:{here.port}/v2/models/iris"
        assert paste(by_host)["name"] == "iris", "curl resolves names below localhost by itself"
        check_printed(here, "iris")
        check_printed(here, "iris", "-n", "team")


def test_predict_example_prints_a_curl_line_that_repeats_the_request(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        folder = tmp_path / "doubler"
        folder.mkdir()
        Path(here.artifact("double")).rename(folder / "model.onnx")
        (folder / "example.json").write_text(json.dumps(infer_body(21.0)))
        tagged = {"storageUri": folder.as_uri(), "traffic": [{"latest": True, "percent": 100, "tag": "blue"}]}
        model = {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": {"name": "own"}, "spec": tagged}
        here.run("deploy", "-f", "-", stdin=json.dumps(model))

        for options in ([], ["--tag", "blue"]):
            done = subprocess.run(
                [*KNODEL, "predict", "own", "--example", *options],
                env=here.environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
            )  # fmt: skip
            assert json.loads(done.stdout)["outputs"][0]["data"] == [42.0], done.stderr
            line = example_of(done.stderr)
            assert ("own@blue/" in line) == bool(options)
            assert paste(line)["outputs"][0]["data"] == [42.0]
        (tagged_url,) = (url for url in urls(here.run("describe", "own")) if url.endswith("@blue"))
        assert httpx.get(f"{tagged_url}/v2/models/own", timeout=PATIENCE).json()["name"] == "own"


def test_the_remedy_of_a_refused_host_works(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        address, headers = f"http://127.0.0.1:{here.port}/v2/models/iris", {"Host": "models.lan"}
        refused = httpx.get(address, headers=headers, timeout=PATIENCE)
        assert refused.status_code == 403
        program = f"{shlex.quote(sys.executable)} -m serving.cli.main"
        commands = re.findall(r"`([^`]*knodel [^`]+)`", refused.json()["error"])
        assert len(commands) == 2
        for command in commands:
            line = re.sub(r"\bknodel\b", program, command.replace("NAME", "models.lan"), count=1)
            subprocess.run(["/bin/sh", "-c", line], env=here.environment, timeout=2 * PATIENCE, check=True)

        allowed = httpx.get(address, headers=headers, timeout=PATIENCE)

    assert (allowed.status_code, allowed.json()["error"].startswith("no model at ")) == (404, True)
