"""A platform under load, and its models."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from autoscaler.scaling.table import FloatArray
from loadtests.bench.platform import BenchPlatform
from loadtests.bench.processes import processes_of
from loadtests.load.generator import Generator
from loadtests.load.plan import Plan
from loadtests.load.responses import Responses
from loadtests.load.sampler import Sampler

HANDLER = 0.1
"""Seconds of the handler, as in Knative's performance tests (`test_images/autoscale`, `sleep=100`)."""
SLOTS = 200
"""Concurrent requests per replica: twice those of a thousand per second of 0.1 s each. The handler is async and uses no
CPU while it sleeps.
"""
PATIENCE, LOOK = 60.0, 0.1  # s until a timeout, and between two checks
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


def expected_output(factor: float) -> str:
    """Return the text that a response of the model with this factor contains."""
    return f'"data":[{factor:.1f}]'


@dataclass(slots=True)
class LoadedPlatform:
    """The platform, artifacts and results of one run, in one folder. As a context manager it starts and stops the
    platform.
    """

    folder: Path
    platform: BenchPlatform

    @classmethod
    def at(cls, folder: Path) -> LoadedPlatform:
        """Return the platform of this folder, not yet running."""
        return cls(folder, BenchPlatform(folder / "state"))

    def __enter__(self) -> LoadedPlatform:
        self.platform.start()
        self.platform.knodel("namespace", "default", "--label", CODE_ALLOWED)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.platform.stop()

    def artifact(self, factor: float, seconds: float = HANDLER) -> str:
        """Write a model that takes `seconds` and multiplies by `factor`; return its URI."""
        path = self.folder / f"times-{factor:g}-{seconds:g}.py"
        path.write_text(SOURCE.format(seconds=seconds, factor=factor))
        return path.as_uri()

    def deploy(self, name: str, factor: float = 2.0, **spec: object) -> None:
        """Deploy a Model with at least one replica and wait until it is ready."""
        wanted = {
            "storageUri": self.artifact(factor), "modelFormat": "python", "minReplicas": 1, "maxReplicas": 1,
            "scaleTarget": SLOTS, "containerConcurrency": SLOTS, **spec,
        }  # fmt: skip
        model = {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": {"name": name}, "spec": wanted}
        self.platform.deploy([model])

    def delete(self, name: str) -> None:
        """Delete the model."""
        self.platform.knodel("delete", name)

    def plan(self, name: str, due: FloatArray, accepted: Sequence[float] = (2.0,)) -> Plan:
        """Return the plan of requests to a model through the gateway at these times."""
        url = f"http://127.0.0.1:{self.platform.port}/v2/models/{name}/infer"
        headers = {"Host": f"{name}.default.localhost", "Content-Type": "application/json"}
        return Plan(url, headers, BODY, [expected_output(factor) for factor in accepted], due.tolist())

    def load(self, name: str, due: FloatArray, accepted: Sequence[float] = (2.0,)) -> Generator:
        """Start a load."""
        return Generator(self.plan(name, due, accepted), self.folder / "load" / name)

    def play(self, name: str, due: FloatArray) -> tuple[Responses, Sampler]:
        """Run a whole load. Return the responses, and samples of the model's ready replicas."""
        with Sampler(lambda: self.ready(name)) as sampler, self.load(name, due) as generator:
            return generator.responses(), sampler

    def ready(self, name: str) -> int:
        """Return the number of ready replicas."""
        conditions = [(pod.get("status") or {}).get("conditions") or [] for pod in self.platform.pods(name)]
        return sum({"type": "Ready", "status": "True"}.items() <= one.items() for pod in conditions for one in pod)

    def until(self, done: Callable[[], bool]) -> None:
        """Wait until `done` returns true. Raises SystemExit after `PATIENCE` seconds."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > deadline:
                raise SystemExit(f"timed out after {PATIENCE:g} s")
            time.sleep(LOOK)

    def pids(self, role: str) -> list[int]:
        """Return the process ids of the platform with this role."""
        return [pid for pid, found in processes_of(self.platform.state) if found == role]
