"""Test `knodel logs` on a platform of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.platform.machine import KNODEL, Machine, machine
from tests.support.wait import eventually

MODEL = """
class Model:
    def predict(self, x):
        print(f"seen {float(x[0])}")
        if x[0] < 0:
            return self.refuse(x)
        return x

    def refuse(self, x):
        raise RuntimeError("a secret of the model\\n2026-01-01 00:00:00,000 INFO forged")
"""
LINE = MODEL[: MODEL.index("raise")].count("\n") + 1


class Printer(Machine):
    """A machine with a model that prints, and access to its Pods."""

    def pods(self, model: str) -> list[str]:
        """Return the names of the model's Pods."""
        found = json.loads(self.run("get", model, "-o", "json"))
        assert found
        folders = (path.parent for path in self.state.glob("logs/*/pod.json") if not (path.parent / "ended").exists())
        known = [json.loads((folder / "pod.json").read_text()) for folder in folders]
        return sorted(one["name"] for one in known if one["labels"].get("knodel.dev/model") == model)

    def pid(self, pod: str) -> int:
        """Return the process id of the Pod."""
        (folder,) = self.state.glob(f"logs/*_{pod}_*")
        uid = folder.name.rpartition("_")[2]
        return int(json.loads((self.state / "pods" / uid / "run.json").read_text())["pid"])

    def edit(self, model: str, **spec: Any) -> None:
        """Change fields of the Model."""
        found = self.model(model)
        kept = {name: found[name] for name in ("apiVersion", "kind")} | {"metadata": {"name": model}}
        self.run("deploy", "-f", "-", stdin=json.dumps({**kept, "spec": {**found["spec"], **spec}}))


@contextmanager
def printer(folder: Path) -> Iterator[Printer]:
    """Yield a machine, and stop its platform at the end of the test."""
    with machine(folder) as made:
        here = Printer.__new__(Printer)
        here.__dict__ = made.__dict__
        yield here


class Following:
    """A running command, and the file with its output."""

    def __init__(self, here: Machine, path: Path, *arguments: str) -> None:
        self.path = path
        with path.open("wb") as output:
            self.process = subprocess.Popen([*KNODEL, *arguments], env=here.environment, stdout=output)

    def has(self, text: str) -> bool:
        """Return whether the text was printed."""
        return text in self.path.read_text()


def request(value: float) -> str:
    """Return a request body with one value."""
    return json.dumps({"inputs": [{"name": "input-0", "datatype": "FP64", "shape": [1], "data": [value]}]})


def deploy(here: Machine, folder: Path, *options: str) -> None:
    """Deploy the model that prints."""
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    here.run("namespace", "default", "--label", "knodel.dev/allow-code=true")
    here.run("deploy", "printer", "--uri", str(folder), "--format", "python", *options)


async def test_output_and_tracebacks_of_a_model_are_in_its_log_and_not_in_the_response(tmp_path: Path) -> None:
    with printer(tmp_path) as here:
        here.up()
        deploy(here, tmp_path / "printer", "--min", "1")

        here.run("predict", "printer", "-d", request(3.0))
        await eventually(lambda: "seen 3.0\n" in here.run("logs", "printer"))
        refused = here.run("predict", "printer", "-d", request(-1.0), code=1)
        await eventually(lambda: "seen -1.0\n" in here.run("logs", "printer"))
        log = here.run("logs", "printer")

        assert "the model failed on this input (error " in refused
        assert not any(word in refused for word in ("secret", "model.py", "refuse", "Traceback"))
        assert "RuntimeError: a secret of the model" in log
        assert f'model.py", line {LINE}, in refuse' in log
        assert not [line for line in log.splitlines() if line.startswith("2026-01-01 00:00:00")]


async def test_following_waits_for_replicas_and_continues_with_later_ones(tmp_path: Path) -> None:
    with printer(tmp_path) as here:
        here.up()
        deploy(here, tmp_path / "printer", "--no-wait")
        following = Following(here, tmp_path / "followed", "logs", "printer", "-f")
        try:
            here.run("wait", "printer")
            here.run("predict", "printer", "-d", request(1.0))
            await eventually(lambda: following.has("seen 1.0"))
            first = here.pods("printer")
            here.run("deploy", "printer", "--version", "2")
            here.run("predict", "printer", "-d", request(2.0))
            await eventually(lambda: following.has("seen 2.0"))
            assert here.pods("printer") != first
            here.run("delete", "printer")
            assert await asyncio.to_thread(following.process.wait, 30) == 0
        finally:
            following.process.kill()
            following.process.wait()
        lines = [line for line in following.path.read_text().splitlines() if "seen" in line]
        assert len(lines) == 2, "each line once"
        assert len({line.split()[0] for line in lines}) == 2, "each with the name of its replica"


async def test_logs_of_ended_replicas_remain_and_previous_shows_the_run_before_a_restart(tmp_path: Path) -> None:
    with printer(tmp_path) as here:
        here.up()
        deploy(here, tmp_path / "printer", "--min", "1")
        here.run("predict", "printer", "-d", request(1.0))
        await eventually(lambda: "seen 1.0\n" in here.run("logs", "printer"))
        assert "no container of printer was restarted" in here.run("logs", "printer", "--previous", code=3)

        (pod,) = here.pods("printer")
        os.kill(here.pid(pod), signal.SIGKILL)
        await eventually(lambda: "seen 1.0\n" not in here.run("logs", "printer"))
        assert "seen 1.0\n" in here.run("logs", "printer", "--previous")
        here.run("wait", "printer")
        here.run("predict", "printer", "-d", request(2.0))
        await eventually(lambda: "seen 2.0\n" in here.run("logs", "printer"))

        here.edit("printer", minReplicas=0, scaleToZeroAfter="1s")
        await eventually(lambda: not here.pods("printer"), 60)
        log = here.run("logs", "printer")
        assert "seen 2.0\n" in log
        assert "seen 1.0\n" not in log
        assert here.run("logs", "printer", "--tail", "0") == ""
