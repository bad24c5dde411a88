"""Code that misbehaves while it is loaded: its model never becomes ready and says why, and nobody else notices."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest

from clusters.base.objects import MODEL, condition_of
from clusters.embedded.kubelet.node import FIRST_BACKOFF
from serving.client.client import Client
from serving.client.state import LocalPlatform
from tests.platform.machine import Machine, machine
from tests.platform.test_life import Prober
from tests.support.wait import eventually

DEADLINE = 20  # s
SETTLED = 20.0  # s more for a busy machine
CHILDREN = 60
MODEL_CODE = """
import os, signal, time

class Model:
    def load(self, folder):
        with open({starts!r}, "a") as file:
            file.write(f"{{time.monotonic()}}\\n")
        {load}

    def predict(self, x):
        return x
"""
LOADS = {
    "segfault": "os.kill(os.getpid(), signal.SIGSEGV)",
    "exit": "os._exit(0)",
    "loop": "while True: pass",
    "forks": f"[os.fork() or time.sleep(3600) for _ in range({CHILDREN})]; time.sleep(3600)",
    "memory": "self.much = bytearray(4 << 30)",
}
MEMORY = "128Mi"
"""A limit; `memory` takes 32 times as much, and is stopped where the process has reserved several times its limit."""


@pytest.mark.timeout(200)
@pytest.mark.fault("M3", shortened=f"startup deadline {DEADLINE} s, not 10 min; {CHILDREN} forks, not without end")
async def test_no_such_model_is_ready_and_others_are_not_harmed(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        here.run("deploy", "steady", "--uri", here.artifact("double"), "--min", "1")
        prober = Prober(here.port, "steady")
        here.run("deploy", "-f", str(written(here)), "--no-wait")
        client = Client(LocalPlatform.find(here.state))

        def failed() -> bool:
            """All of them, each with the reason that is its own."""
            for name in LOADS:
                ready = condition_of(client.get(MODEL, name, "default"), "Ready") or {}
                assert ready.get("status") == "False" and ready.get("message"), (name, ready)
            return True

        await eventually(failed, DEADLINE + SETTLED)
        ready = {name: condition_of(client.get(MODEL, name, "default"), "Ready") or {} for name in LOADS}
        prober.stop()
        assert prober.failures == []
        assert prober.answered > 100
        assert "MemoryError" in ready["memory"]["message"], ready["memory"]
        for name in ("segfault", "exit", "memory"):
            check_backed_off(starts_of(tmp_path, name), name)
        for name in LOADS:
            here.run("delete", name)
        await eventually(lambda: here.processes().count("replica") == 1, 40)
        assert here.ask("steady", 2.0) == 4.0
        here.run("down")
        assert here.processes() == []


def written(here: Machine) -> Path:
    """The Models of all of them, in one file."""
    made = []
    for name, load in LOADS.items():
        path = here.folder / name / "model.py"
        path.parent.mkdir()
        path.write_text(MODEL_CODE.format(starts=str(here.folder / f"{name}.starts"), load=load))
        spec = {
            "storageUri": path.as_uri(), "modelFormat": "python", "minReplicas": 1, "maxReplicas": 1,
            "startupDeadline": f"{DEADLINE}s", "resources": {"memory": MEMORY},
        }  # fmt: skip
        made.append({"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": {"name": name}, "spec": spec})
    path = here.folder / "models.yaml"
    path.write_text("\n---\n".join(map(json.dumps, made)))
    return path


def starts_of(folder: Path, name: str) -> list[float]:
    """When its load began, each time."""
    return [float(line) for line in (folder / f"{name}.starts").read_text().splitlines()]


def check_backed_off(starts: list[float], name: str) -> None:
    """The first restart is at once, as the kubelet's is; then each waits."""
    assert starts, name
    waits = [later - earlier for earlier, later in pairwise(starts)][1:]
    assert all(wait >= FIRST_BACKOFF - 0.5 for wait in waits), (name, waits)
    assert len(starts) <= 3 + (time.monotonic() - starts[0]) / FIRST_BACKOFF
