"""A real platform in the test's own loop, with pools of members that run Python code."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autoscaler.warmpool.claims.marks import LABEL_POOL
from autoscaler.warmpool.claims.pods import is_claimed
from clusters.base.objects import POD, Object, name_of, uid_of
from tests.faults.kit import programs
from tests.scenarios import embedded
from tests.scenarios.conftest import has_no_pods
from tests.scenarios.test_scaling import at_zero, living_pods
from tests.scenarios.world import World

POOL = "shared"
PYTHON = {"modelFormat": "python"}


@dataclass(frozen=True)
class Stage:
    """The platform, its state folder, and a folder for artifacts."""

    world: World
    state: Path
    artifacts: Path

    async def deploy(self, name: str, program: bytes, **spec: Any) -> None:
        """A Model of that program, at zero once it has proven itself."""
        uri = programs.write(self.artifacts, name, program)
        asked = {"maxReplicas": 1, "scaleToZeroAfter": "1s", **PYTHON, **spec}
        await self.world.deploy(name, storageUri=uri, **asked)
        if not spec.get("minReplicas"):
            await at_zero(self.world, f"{name}-00001")

    async def pool(self, size: int) -> None:
        """A full pool that fits them."""
        await self.world.pool(POOL, size, **PYTHON)

    async def members(self) -> list[Object]:
        """Free ones."""
        pods = (await self.world.cluster.list(POD, "default", f"{LABEL_POOL}={POOL}")).items
        return [pod for pod in pods if not is_claimed(pod)]

    async def claimed(self, name: str) -> list[Object]:
        """Living Pods of a Model that came out of the pool."""
        return [pod for pod in await living_pods(self.world, f"{name}-00001") if is_claimed(pod)]

    def pid(self, pod: Object) -> int:
        """Of the Pod's process."""
        return int(json.loads((self.state / "pods" / uid_of(pod) / "run.json").read_text())["pid"])

    def kill(self, pod: Object) -> None:
        """SIGKILL, as the machine does when memory runs out."""
        os.kill(self.pid(pod), signal.SIGKILL)

    def has_gone(self, pod: Object, pid: int) -> bool:
        """Whether neither the process nor a file of the Pod is left."""
        return not Path(f"/proc/{pid}").exists() and not (self.state / "pods" / uid_of(pod)).exists()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A platform without Models."""
    artifacts = tmp_path / "programs"
    artifacts.mkdir()
    async with embedded.world(tmp_path) as world:
        yield Stage(world, tmp_path / "state", artifacts)
        await world.sweep()
        await world.eventually(lambda: has_no_pods(world))  # else its end waits longer for those on their way out


def names(pods: list[Object]) -> set[str]:
    """Of Pods."""
    return {name_of(pod) for pod in pods}
