"""A platform that is put under load, and the models that it serves meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from autoscaler.scaling.table import FloatArray
from loadtests.bench.platform import Platform
from loadtests.bench.processes import processes_of
from loadtests.load.answers import Answers
from loadtests.load.generator import Generator
from loadtests.load.plan import Plan
from loadtests.load.watch import Watch

HANDLER = 0.1
"""Seconds that the handler takes: that of Knative's own performance tests (`test_images/autoscale`, `sleep=100`)."""
SLOTS = 200
"""Requests in a replica at once: a thousand a second for 0.1 s, twice. The handler is async: it takes no core while it
sleeps, and a replica has as many inside as it has slots."""
PATIENCE, LOOK = 60.0, 0.1  # s for a state that is waited for, and between looks
CODE_ALLOWED = "knodel.dev/allow-code=true"
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}]})
SOURCE = """
import asyncio

class Model:
    inputs = [{{"name": "x", "datatype": "FP32", "shape": [-1]}}]
    outputs = [{{"name": "y", "datatype": "FP32", "shape": [-1]}}]

    async def predict(self, x):
        await asyncio.sleep({seconds})
        return {factor} * x
"""


def said(factor: float) -> str:
    """What an answer of the model that multiplies by this has in it."""
    return f'"data":[{factor:.1f}]'


@dataclass(slots=True)
class Stage:
    """One run's platform, artifacts and results, in one folder; the platform ends with the context."""

    folder: Path
    platform: Platform

    @classmethod
    def at(cls, folder: Path) -> Stage:
        """In this folder; not yet running."""
        return cls(folder, Platform(folder / "state"))

    def __enter__(self) -> Stage:
        self.platform.start()
        self.platform.knodel("namespace", "default", "--label", CODE_ALLOWED)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.platform.stop()

    def artifact(self, factor: float, seconds: float = HANDLER) -> str:
        """Address of a model that takes so long and multiplies by `factor`."""
        path = self.folder / f"times-{factor:g}-{seconds:g}.py"
        path.write_text(SOURCE.format(seconds=seconds, factor=factor))
        return path.as_uri()

    def deploy(self, name: str, factor: float = 2.0, **spec: object) -> None:
        """A Model with a replica at least, ready."""
        wanted = {
            "storageUri": self.artifact(factor), "modelFormat": "python", "minReplicas": 1, "maxReplicas": 1,
            "scaleTarget": SLOTS, "containerConcurrency": SLOTS, **spec,
        }  # fmt: skip
        model = {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": {"name": name}, "spec": wanted}
        self.platform.deploy([model])

    def delete(self, name: str) -> None:
        """Not there any more."""
        self.platform.knodel("delete", name)

    def plan(self, name: str, due: FloatArray, accepted: Sequence[float] = (2.0,)) -> Plan:
        """Requests to a model through the gateway, at these times."""
        url = f"http://127.0.0.1:{self.platform.port}/v2/models/{name}/infer"
        headers = {"Host": f"{name}.default.localhost", "Content-Type": "application/json"}
        return Plan(url, headers, BODY, [said(factor) for factor in accepted], due.tolist())

    def load(self, name: str, due: FloatArray, accepted: Sequence[float] = (2.0,)) -> Generator:
        """Begin it."""
        return Generator(self.plan(name, due, accepted), self.folder / "load" / name)

    def play(self, name: str, due: FloatArray) -> tuple[Answers, Watch]:
        """A whole load, and what was seen of the model's replicas meanwhile."""
        with Watch(lambda: self.ready(name)) as watch, self.load(name, due) as generator:
            return generator.answers(), watch

    def ready(self, name: str) -> int:
        """Replicas that are ready."""
        conditions = [(pod.get("status") or {}).get("conditions") or [] for pod in self.platform.pods(name)]
        return sum({"type": "Ready", "status": "True"}.items() <= one.items() for pod in conditions for one in pod)

    def until(self, done: Callable[[], bool]) -> None:
        """Return once it is. Raises SystemExit after `PATIENCE`."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > deadline:
                raise SystemExit(f"what was waited for did not happen within {PATIENCE:g} s")
            time.sleep(LOOK)

    def pids(self, role: str) -> list[int]:
        """Of the platform's processes with this role."""
        return [pid for pid, found in processes_of(self.platform.state) if found == role]
