"""A platform with a model, for the tests of the clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import knodel
from tests.platform.machine import Machine, machine


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A platform that serves `double`: FP32 x [-1] → y = 2x."""
    with machine(tmp_path_factory.mktemp("platform")) as here:
        here.up()
        with knodel.Client(state=here.state) as client:
            client.deploy(here.artifact("double"), "double", min_replicas=1)
        yield here


@pytest.fixture
def client(platform: Machine) -> Iterator[knodel.Client]:
    """A client of the platform."""
    with knodel.Client(state=platform.state) as made:
        yield made
