"""The platform that the scenarios run on: `--cluster embedded|kubernetes`, the same scenarios on both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.scenarios import embedded
from tests.scenarios.world import World


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All scenarios share one loop, as they share one platform, which must not stand still between two of them."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="package"), append=False)


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One platform for all scenarios."""
    folder = tmp_path_factory.mktemp("platform")
    if request.config.getoption("--cluster") == "kubernetes":
        from tests.scenarios import on_kubernetes  # the client of Kubernetes is a large import

        making = on_kubernetes.world(request.config, folder)
    else:
        making = embedded.world(folder)
    async with making as made:
        yield made


@pytest_asyncio.fixture(loop_scope="package")
async def world(platform: World) -> AsyncIterator[World]:
    """The platform for one scenario, whose Models go with its end."""
    yield platform
    await platform.sweep()
