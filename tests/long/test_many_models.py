"""`knodel serve DIR --models` as a user runs it: two models, and memory for one."""

from __future__ import annotations

import hashlib
import http.client
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from loadtests.bench.processes import all_stats, resident
from serving.modelserver.base.options import LOAD_TOKEN
from tests.long.served import HOST, KNODEL, STARTS_WITHIN, Served, is_ready, served
from tests.serving.modelserver.models.conftest import weighty
from tests.support.ports import free_port, free_ports
from tests.testbed.waiting import becomes

TOKEN = "a token"
LARGE = 64 << 20  # bytes of a model's data: much beside what else a process takes and gives back
LIMIT = "120Mi"
"""Room for one of them: two have 128 MiB of files alone."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two large models; and the server knows the token."""
    monkeypatch.setenv(LOAD_TOKEN, hashlib.sha256(TOKEN.encode()).hexdigest())
    made = tmp_path / "models"
    made.mkdir()
    for factor in (2, 3):
        (made / f"times{factor}.onnx").write_bytes(weighty(factor, LARGE))
    return made


def manage(port: int, path: str) -> Any:
    """The answer of the repository to a POST without a body."""
    connection = http.client.HTTPConnection(HOST, port, timeout=STARTS_WITHIN)
    try:
        connection.request("POST", f"/v2/repository{path}", headers={"authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        content = json.loads(answer.read())
    finally:
        connection.close()
    assert answer.status == http.client.OK, content
    return content


def times(server: Served, factor: int) -> float:
    """What the model makes of 1."""
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}]}
    answer = server.ask("POST", f"/v2/models/times{factor}/infer", json.dumps(body).encode())
    return float(answer["outputs"][0]["data"][0])


def test_two_models_take_turns_in_the_memory_of_one(folder: Path, tmp_path: Path) -> None:
    management = free_port()
    options = ("--models", "--memory-limit", LIMIT, "--management-port", str(management))
    with served(tmp_path / "log", str(folder), *options) as server:
        most = resident(server.pid) + LARGE
        for factor in (2, 3, 2, 3, 3, 2):
            assert times(server, factor) == factor
            ready = [entry["name"] for entry in manage(management, "/index") if entry["state"] == "READY"]
            assert ready == [f"times{factor}"]
            assert resident(server.pid) < most
        (folder / "times2.onnx").write_bytes(weighty(5))
        manage(management, "/models/times2/load")
        versions = {entry["name"]: entry["version"] for entry in manage(management, "/index")}
        assert versions == {"times2": "times2-00002", "times3": "times3-00001"}
        assert times(server, 2) == 5


def test_killed_it_leaves_nothing_and_starts_again_on_its_ports(folder: Path, tmp_path: Path) -> None:
    port, management = free_ports(2)
    ports = ("--port", str(port), "--management-port", str(management))
    for _ in range(2):
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(
                [*KNODEL, str(folder), "--models", *ports], stdout=log, stderr=log, start_new_session=True
            )
        assert becomes(lambda: is_ready(port), STARTS_WITHIN), (tmp_path / "log").read_text()
        process.kill()
        process.wait()
        assert not [pid for pid, stat in all_stats() if stat.session == process.pid]
