"""The platform that the scenarios run on: `--cluster embedded|kubernetes`, the same scenarios on both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from clusters.base.objects import POD
from tests.scenarios import embedded
from tests.scenarios.world import World

LONG = frozenset({"test_training.py"})
"""Scenarios that take more than half a minute: with `--long` (`make scenarios`), and on Kubernetes."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The everyday tests leave the long ones out."""
    wanted = config.getoption("--long") or config.getoption("--cluster") == "kubernetes"
    return True if collection_path.name in LONG and not wanted else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All scenarios share one loop, as they share one platform, which must not stand still between two of them."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.parent == folder:
            item.add_marker(pytest.mark.asyncio(loop_scope="package"), append=False)


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One platform for all scenarios."""
    folder, real = tmp_path_factory.mktemp("platform"), request.config.getoption("--cluster") == "kubernetes"
    if real:
        from tests.scenarios import on_kubernetes  # the client of Kubernetes is a large import

        making = on_kubernetes.world(request.config, folder)
    else:
        making = embedded.world(folder)
    async with making as made:
        yield made
        if not real:  # whose end waits 5 s for Pods that are on their way out
            await made.eventually(lambda: has_no_pods(made))


async def has_no_pods(world: World) -> bool:
    """Whether all of them are gone."""
    return not (await world.cluster.list(POD)).items


@pytest_asyncio.fixture(loop_scope="package")
async def world(platform: World) -> AsyncIterator[World]:
    """The platform for one scenario, whose Models go with its end."""
    yield platform
    await platform.sweep()
