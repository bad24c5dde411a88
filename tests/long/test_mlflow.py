"""Models that the real mlflow has logged: Knodel answers `/invocations` as mlflow's own scoring server, and resolves
`models:/` and `runs:/` by a real tracking server. mlflow has an environment of its own.
"""

from __future__ import annotations

import http.client
import importlib.metadata
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from loadtests.bench.servers.environments import Peer
from serving.client.errors import DoesNotExist, UsageError
from serving.client.mlflow.resolve import ResolvedModel, resolve
from tests.long import apps
from tests.long.served import ENDS_WITHIN, HOST, KNODEL, Served, served
from tests.support import guide
from tests.support.own_home import REAL_HOME
from tests.support.ports import free_port
from tests.support.shell import Shell
from tests.testbed.waiting import becomes

ROOT = Path(__file__).parents[2]
ENGINES = ("scikit-learn", "skops", "xgboost-cpu", "lightgbm", "onnxruntime", "numpy")
SERVER = [
    re.sub(r";.*", "", requirement).strip()
    for requirement in importlib.metadata.requires("knodel") or ()
    if "extra" not in requirement or re.search(r"extra == .(server|grpc).$", requirement)
]
"""What Knodel's server needs, for the flavor python_function, which runs in mlflow's environment."""
MLFLOW = Peer("mlflow", "3.17.2", ENGINES, ("skl2onnx==1.20.0", *sorted(set(SERVER) - {"knodel[server]"})))
PROGRAM = Path(apps.__file__).with_name("mlflow_models.py")
NAMES = (
    "code-pyfunc", "code-sklearn", "lightgbm-booster", "lightgbm-classifier", "onnx", "sklearn-columns",
    "sklearn-mixed", "sklearn-proba", "sklearn-tensor", "sklearn-text", "sklearn-unsigned", "xgboost-booster",
    "xgboost-classifier",
)  # fmt: skip
STARTS_WITHIN = 120.0  # s; mlflow makes its database first
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders that mlflow has written, and `answers.json`."""
    folder = tmp_path_factory.mktemp("mlflow")
    run_program(folder)
    return folder


@cache
def python_of_mlflow() -> Path:
    """The interpreter of mlflow's environment, which is in the user's own cache for all runs of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        if "XDG_CACHE_HOME" not in os.environ:
            patch.setenv("XDG_CACHE_HOME", str(Path(os.environ[REAL_HOME]) / ".cache"))
        return MLFLOW.python()


def run_program(folder: Path, *more: str) -> str:
    environment = {**os.environ, **QUIET, "MLFLOW_TRACKING_URI": f"sqlite:///{folder}.db"}
    done = subprocess.run(
        [str(python_of_mlflow()), str(PROGRAM), str(folder), *more], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_the_same_requests_get_the_same_predictions(logged: Path, tmp_path: Path, name: str) -> None:
    answers = json.loads((logged / "answers.json").read_text())[name]
    options = ["--allow-code"] if name.startswith("code-") else []
    command: Any = KNODEL
    if name == "code-pyfunc":
        command = ("env", f"PYTHONPATH={ROOT}", str(python_of_mlflow()), *KNODEL[1:])
    with served(tmp_path / "log", str(logged / name), *options, command=command) as server:
        compared = [compare(server, *answer) for answer in answers]
    wrong = [one for one in compared if one]
    assert not wrong, wrong
    assert sum(answer[2] == 200 for answer in answers) >= 4


def compare(server: Served, kind: str, body: str, status: int, answer: str) -> Any:
    """What differs; None if nothing does. Knodel may accept what mlflow refuses, if no column is missing."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=ENDS_WITHIN)
    connection.request("POST", "/invocations", body.encode(), {"Content-Type": kind})
    response = connection.getresponse()
    content = json.loads(response.read())
    connection.close()
    if status == 200:
        same = response.status == 200 and is_close(content, json.loads(answer))
        return None if same else (body, answer, response.status, content)
    if response.status == 200:
        return None if "wrong" not in body and "predictions" in content else (body, status, content)
    return None if content.keys() == {"error_code", "message"} else (body, content)


def is_close(one: Any, other: Any) -> bool:
    """Whether two values of JSON are equal but for the last digits of numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_close(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_close, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return bool(one == pytest.approx(other, rel=1e-6, abs=1e-9))
    return bool(one == other)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[list[str]]]]:
    """A tracking server with two versions of `churn`, and the ids of their runs and models."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    command = [
        str(python_of_mlflow().with_name("mlflow")), "server", "--host", HOST, "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, env={**os.environ, **QUIET}, start_new_session=True
        )
    try:
        assert becomes(lambda: is_up(port) or process.poll() is not None, STARTS_WITHIN), (folder / "log").read_text()
        ids = json.loads(run_program(folder, f"http://{HOST}:{port}").splitlines()[-1])
        yield f"http://{HOST}:{port}", ids
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(ENDS_WITHIN)


def is_up(port: int) -> bool:
    """Whether the tracking server answers."""
    connection = http.client.HTTPConnection(HOST, port, timeout=ENDS_WITHIN)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


def test_a_real_registry_resolves_each_kind_of_uri(registry: tuple[str, list[list[str]]], tmp_path: Path) -> None:
    url, ((run, model), (_, newest)) = registry

    def found(uri: str) -> ResolvedModel:
        return resolve(uri, {"MLFLOW_TRACKING_URI": url}, tmp_path)

    first = (Path(found("models:/churn/1").location) / "MLmodel").read_text()
    for uri, version in (
        ("models:/churn@champion", "1"),
        (f"models:/{model}", model),
        (f"runs:/{run}/model", run),
        ("models:/churn/1", "1"),
    ):
        got = found(uri)
        assert got.version == version, uri
        assert (Path(got.location) / "MLmodel").read_text() == first
    got = found("models:/churn/latest")
    assert got.version == "2" and newest in (Path(got.location) / "MLmodel").read_text() != first
    for uri in ("models:/churn/3", "models:/nobody/1", "models:/churn@nobody", "models:/churn/Production",
                "models:/m-0", "runs:/0/model"):  # fmt: skip
        with pytest.raises(DoesNotExist, match="does not exist"):
            found(uri)
    with pytest.raises(UsageError, match="has no files"):
        found(f"runs:/{run}/nothing")


def test_a_registered_model_is_served(registry: tuple[str, list[list[str]]], tmp_path: Path) -> None:
    command = ("env", f"MLFLOW_TRACKING_URI={registry[0]}", f"XDG_CACHE_HOME={tmp_path}", *KNODEL)
    with served(tmp_path / "log", "models:/churn@champion", command=command) as server:
        body = b'{"inputs": [[6.8, 2.8, 4.8, 1.4]]}'
        answer = server.ask("POST", "/invocations", body, {"Content-Type": "application/json"})
        assert answer == {"predictions": [1]}
        assert server.ask("GET", "/v2/models/churn")["platform"] == "mlflow_sklearn"


WALK = (ROOT / "docs" / "from-mlflow.md").read_text(encoding="utf-8")
PORTS = ("8080", "5000")
"""As the page has them: the gateway, the tracking server."""
STEP_WITHIN = 120.0  # s


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The shell of a user who has mlflow and knodel, in a folder with the files of the page."""
    folder = tmp_path_factory.mktemp("walk")
    for name, content in guide.files(WALK):
        (folder / name).write_text(content)
    programs = folder / "bin"
    programs.mkdir()
    for name, target in (
        ("mlflow", python_of_mlflow().with_name("mlflow")),
        ("python", python_of_mlflow()),
        ("knodel", Path(sys.prefix, "bin", "knodel")),
    ):
        (programs / name).write_text(f'#!/bin/sh\nexec {target} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **os.environ, **QUIET, "PATH": f"{programs}:{os.environ['PATH']}", "KNODEL_STATE": str(folder / "state"),
        "XDG_CACHE_HOME": str(folder / "cache"), "KUBECONFIG": str(folder / "none"),
    }  # fmt: skip
    with Shell(folder, environment) as shell:
        yield shell
        shell.run("knodel down", STEP_WITHIN)


@pytest.fixture(scope="module")
def ports() -> dict[str, str]:
    """Free ports in the place of the page's; the platform takes two more behind the gateway's."""
    gateway = next(port for port in range(21_080, 30_000, 10) if all(is_free(port + one) for one in range(3)))
    return dict(zip(PORTS, (str(gateway), str(free_port())), strict=True))


def is_free(port: int) -> bool:
    """Whether nothing listens on this port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


@pytest.mark.parametrize("session", list(guide.sessions(WALK)), ids=lambda session: session.heading)
def test_the_walk_of_a_user_of_mlflow(walker: Shell, ports: dict[str, str], session: guide.Session) -> None:
    for step in session.steps:
        command = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: ports[found[0]], step.command)
        printed = walker.run(command, STEP_WITHIN)
        assert not step.expected.strip() or step.agrees(printed), f"{command}\n{printed}"
