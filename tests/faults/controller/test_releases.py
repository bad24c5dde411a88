"""An older release of ours, a newer one, and the older one again over the same stored objects (K14).

The newer one is `tests.faults.controller.newer`. Each is killed, not ended: its models go on, and the next one finds
them as they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clusters.base.objects import Object
from tests.platform.machine import PATIENCE, Machine, machine
from tests.platform.test_life import Prober
from tests.testbed.waiting import becomes

NEWER = [sys.executable, "-m", "tests.faults.controller.newer"]
MOOD = "of tomorrow"
NAME = "steady"


def newer(here: Machine, *arguments: str) -> str:
    """A command of the newer release."""
    done = subprocess.run(
        [*NEWER, *arguments], env=here.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def newer_platform(here: Machine) -> Iterator[None]:
    """The newer release's platform, killed at the end."""
    with (here.folder / "newer.log").open("ab") as log:
        ports = ["--port", str(here.port), "--control-port", str(here.control)]
        process = subprocess.Popen([*NEWER, "up", *ports], env=here.environment, stdout=log, stderr=log)
    try:
        until(lambda: (here.state / "platform.json").exists() and here.facts()["pid"] == process.pid)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def older_platform(here: Machine) -> Iterator[None]:
    """This release's platform, killed at the end."""
    here.up()
    try:
        yield
    finally:
        pid = here.facts()["pid"]
        here.kill()
        until(lambda: not _is_there(pid))


def until(holds: Callable[[], bool]) -> None:
    """Return once it does."""
    assert becomes(holds, PATIENCE)


def ready(model: Object) -> dict[str, Any]:
    """Its condition."""
    found: dict[str, Any] = next(one for one in model["status"]["conditions"] if one["type"] == "Ready")
    return found


def is_observed(model: Object) -> bool:
    """Whether its status speaks of its spec."""
    return bool(model["status"]["observedGeneration"] == model["metadata"]["generation"])


def manifest(here: Machine, artifact: str) -> str:
    """A file that asks for the newer release's field."""
    path = here.folder / "newer.json"
    spec = {"storageUri": Path(here.artifact(artifact)).as_uri(), "minReplicas": 1, "mood": MOOD}
    meta = {"name": NAME, "namespace": "default"}
    path.write_text(json.dumps({"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": meta, "spec": spec}))
    return str(path)


@pytest.mark.fault("K14")
@pytest.mark.timeout(300)
def test_older_newer_older_loses_no_field_and_no_request(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        with older_platform(here):
            here.run("deploy", NAME, "--uri", here.artifact("double"), "--min", "1")
            prober = Prober(here.port, NAME)
        with newer_platform(here):
            newer(here, "deploy", "-f", manifest(here, "triple"))
            newer(here, "wait", NAME)
            until(lambda: here.model(NAME)["status"].get("mood") == MOOD)
            written = here.model(NAME)
        with older_platform(here):
            until(lambda: ready(here.model(NAME))["reason"] == "InvalidSpec")
            found = here.model(NAME)
            assert "spec.mood" in ready(found)["message"]
            assert here.ask(NAME) == 3.0
            check_nothing_is_lost(written, found)
            here.run("deploy", NAME, "--uri", here.artifact("double"), code=2)
            check_nothing_is_lost(written, here.model(NAME))
        with newer_platform(here):
            until(lambda: ready(here.model(NAME))["status"] == "True" and is_observed(here.model(NAME)))
            check_nothing_is_lost(written, here.model(NAME))
            newer(here, "deploy", "-f", manifest(here, "double"))
            newer(here, "wait", NAME)
            until(lambda: len(here.model(NAME)["status"]["history"]) == len(written["status"]["history"]) + 1)
        prober.stop()
        assert prober.failures == []
        assert prober.answered > 100


def check_nothing_is_lost(written: Object, found: Object) -> None:
    """What the newer release wrote stands as it wrote it."""
    assert found["spec"] == written["spec"]
    assert found["status"]["mood"] == MOOD
    assert found["status"]["history"] == written["status"]["history"]
    assert found["status"]["traffic"] == written["status"]["traffic"]


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
