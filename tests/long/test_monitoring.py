"""A real Prometheus scrapes a platform, with the configuration that it writes: no panel of a dashboard stays empty.

Debian's package `prometheus` has the program. `.ci/run` installs it.
"""

from __future__ import annotations

import http.client
import json
import math
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from examples.quickstart_llm import model_file
from tests.manifests.alerts import ALERTS
from tests.manifests.dashboards import DASHBOARDS, Panel
from tests.platform.machine import Machine, machine
from tests.support.ports import free_ports

PROGRAM = shutil.which("prometheus")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs Prometheus: apt-get install prometheus")

OBJECTS = """
apiVersion: knodel.dev/v1alpha1
kind: WarmPool
metadata: {name: small}
spec: {size: 1}
---
apiVersion: knodel.dev/v1alpha1
kind: Model
metadata: {name: iris}
spec:
  storageUri: file://PATH
  version: "1"
  minReplicas: 1
  rollout: {steps: [50, 100], stepDuration: 10m, judge: {interval: 5s}}
---
apiVersion: knodel.dev/v1alpha1
kind: Model
metadata: {name: asleep}
spec: {storageUri: file://PATH, version: "1", maxReplicas: 1, scaleToZeroAfter: 1s}
"""
BETWEEN_STARTS = 5
"""Turns, in which the model `asleep` goes back to zero."""
PATIENCE = 120.0
"""s, in which the last panel has data."""
STARTING = "starting"
VARIABLES = {"$__rate_interval": "1m", "$namespace": ".*", "$model": ".*", "$revision": ".*"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A platform with a warm pool, a language model, an event, and a rollout in progress under traffic."""
    with machine(tmp_path_factory.mktemp("platform")) as made:
        made.up()
        made.run("deploy", "-f", "-", stdin=OBJECTS.replace("PATH", made.artifact("double")))
        made.run("deploy", "smol", "--uri", str(model_file()), "--min", "1")
        made.run("events", "allow", "/train", "--models", "iris", "--storage-prefix", f"file://{made.folder}/")
        made.run("events", "send", "iris", "--uri", f"file://{made.artifact('triple')}", "--version", "2")
        yield made


@pytest.fixture(scope="module")
def prometheus(platform: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Prometheus with the platform's own configuration."""
    assert PROGRAM is not None
    (port,) = free_ports(1)
    folder = tmp_path_factory.mktemp("prometheus")
    argv = [
        PROGRAM, f"--config.file={platform.state / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            yield port
        finally:
            process.terminate()


def test_no_panel_is_empty(platform: Machine, prometheus: int) -> None:
    panels = [(board.name, panel) for board in DASHBOARDS for panel in board.panels]
    left = {(board, panel.title): panel for board, panel in panels if not panel.needs}
    deadline = time.monotonic() + PATIENCE
    for turn in count():
        if not left or time.monotonic() > deadline:
            break
        platform.ask("iris")
        if turn % BETWEEN_STARTS == 0:
            platform.ask("asleep")
        platform.run("chat", "smol", "Say hello.", "--max-tokens", "8")
        left = {name: panel for name, panel in left.items() if not filled(prometheus, panel)}
    assert not list(left)


def test_every_alert_is_evaluated(prometheus: int) -> None:
    for alert in ALERTS:
        query(prometheus, alert.expression)


def test_every_metric_is_described(prometheus: int) -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    found = ask(prometheus, "/api/v1/label/__name__/values")["data"]
    names = {re.sub(r"_(bucket|count|sum)$", "", name) for name in found if name.startswith("knodel_")}
    assert names
    assert not [name for name in names if f"`{name}`" not in text]


def filled(port: int, panel: Panel) -> bool:
    """Whether every query of the panel has a number."""
    return all(any(map(math.isfinite, query(port, expression))) for _, expression in panel.queries)


def query(port: int, expression: str) -> list[float]:
    """The values of an expression now. Raises AssertionError if Prometheus refuses it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    answer = ask(port, "/api/v1/query?" + urlencode({"query": expression}))
    assert answer["status"] in ("success", STARTING), (expression, answer)
    return [float(one["value"][1]) for one in answer["data"]["result"]]


def ask(port: int, path: str) -> Any:
    """The answer of Prometheus in JSON; one without results while it starts."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    except ConnectionRefusedError:
        return {"status": STARTING, "data": {"result": []}}
    finally:
        connection.close()
