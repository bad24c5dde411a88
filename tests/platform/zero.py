"""Random schedules of a model's last request against its way to zero, many models at once, every answer checked.

    python -m tests.platform.zero --schedules 10000 --models 30 --pool 4 --limit 1800

A schedule is one race: a request, a random time around that in which the last replica goes, and the next request (or a
few at once). Real processes on one machine; exit code 1 when an answer was wrong or none came.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.platform.machine import Machine, machine
from tests.scenarios.world import infer_body

IDLE = "1s"  # scaleToZeroAfter: the least that there is
GAPS = (0.8, 2.6)  # s between an answer and the next request: a replica goes 1.0 to 2.4 s after the last one
BURST = (1, 1, 1, 2, 3)  # requests at once, one of these
STAGES = ("claim", "start", "queue")  # of Server-Timing: how the request found the model
PATIENCE = 60.0  # s for one answer
POOL = "races"
SHOWN = 10  # failures that are printed


@dataclass
class Tally:
    """The results of the schedules. `found`: the state of each model at the first request, `ready` or a stage."""

    failures: list[str] = field(default_factory=list)
    found: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    schedules: int = 0
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        waits = sorted(self.waits) or [0.0]
        p50, p99 = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
        found = ", ".join(f"{name} {count}" for name, count in self.found.most_common())
        return (
            f"{self.schedules} schedules in {self.seconds:.0f} s, {self.answers} answers ({found}), "
            f"{len(self.failures)} failures; p50 {p50:.0f} ms, p99 {p99:.0f} ms, slowest {waits[-1]:.0f} ms"
        )


@dataclass(frozen=True)
class Races:
    """Schedules of several models on one machine."""

    here: Machine
    models: int
    seed: int = 0

    def deploy(self) -> None:
        """Deploy the models; each scales to zero."""
        artifact = Path(self.here.artifact("double")).as_uri()
        made = [_model(self._name(number), artifact) for number in range(self.models)]
        path = self.here.folder / "races.yaml"
        path.write_text("\n---\n".join(json.dumps(model) for model in made))
        self.here.run("deploy", "-f", str(path))

    def pool(self, size: int) -> None:
        """Create a warm pool for the models."""
        self.here.run("pool", "set", POOL, "--like", self._name(0), "--size", str(size))

    async def run(self, schedules: int, limit: float) -> Tally:
        """Run this number of schedules, or fewer if `limit` seconds are over."""
        tally, began = Tally(), time.monotonic()
        connector, patience = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(PATIENCE)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=patience) as session,
            asyncio.TaskGroup() as group,
        ):
            for number in range(self.models):
                share = schedules // self.models + (number < schedules % self.models)
                group.create_task(self._race(session, number, share, began + limit, tally))
        tally.seconds = time.monotonic() - began
        return tally

    async def _race(
        self, session: aiohttp.ClientSession, number: int, share: int, deadline: float, tally: Tally
    ) -> None:
        source = random.Random(f"{self.seed} {number}")
        for _ in range(share):
            await asyncio.sleep(source.uniform(*GAPS))
            if time.monotonic() > deadline:
                return
            values = [float(source.randrange(1000)) for _ in range(source.choice(BURST))]
            await asyncio.gather(*(self._ask(session, self._name(number), value, tally) for value in values))
            tally.schedules += 1

    async def _ask(self, session: aiohttp.ClientSession, name: str, value: float, tally: Tally) -> None:
        url = f"http://127.0.0.1:{self.here.port}/v2/models/{name}/infer"
        began = time.perf_counter()
        try:
            async with session.post(url, json=infer_body(value)) as answer:
                text = await answer.text()
                status, headers = answer.status, answer.headers
        except (aiohttp.ClientError, TimeoutError) as error:
            tally.failures.append(f"{name}: {error!r} after {time.perf_counter() - began:.3f} s")
            return
        tally.answers += 1
        tally.waits.append((time.perf_counter() - began) * 1000)
        tally.found[_found(headers.get("server-timing", ""))] += 1
        if fault := _fault(status, text, headers.get("knodel-revision", ""), name, value):
            tally.failures.append(f"{name}: {fault}")

    @staticmethod
    def _name(number: int) -> str:
        return f"race-{number:02}"


def _model(name: str, artifact: str) -> dict[str, Any]:
    spec = {"storageUri": artifact, "scaleToZeroAfter": IDLE, "maxReplicas": 2}
    return {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": {"name": name}, "spec": spec}


def _found(timing: str) -> str:
    return next((stage for stage in STAGES if timing.startswith(f"{stage};")), "ready")


def _fault(status: int, text: str, revision: str, name: str, value: float) -> str:
    """Return the fault of a response; empty if there is none."""
    if status != 200:
        return f"status {status}: {text[:200]}"
    found = json.loads(text)["outputs"][0]["data"]
    if found != [2 * value] or revision != f"{name}-00001":
        return f"{found} of {revision or 'nobody'} for {value}"
    return ""


def main() -> int:
    """Run schedules and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--models", type=int, default=30)
    parser.add_argument("--pool", type=int, default=0, help="members of a warm pool [none]")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds at most [%(default)g]")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="knodel-races-") as folder, machine(Path(folder)) as here:
        here.up()
        races = Races(here, options.models, options.seed)
        races.deploy()
        if options.pool:
            races.pool(options.pool)
        tally = asyncio.run(races.run(options.schedules, options.limit))
    print(tally)
    for failure in tally.failures[:SHOWN]:
        print(failure)
    return int(bool(tally.failures) or tally.schedules < options.schedules)


if __name__ == "__main__":
    sys.exit(main())
