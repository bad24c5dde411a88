"""Fixtures of all tests."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.embedded.cluster import EmbeddedCluster
from tests.support.clusters import embedded_cluster

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before anything imports ONNX Runtime: it would report to its makers


def pytest_addoption(parser: pytest.Parser) -> None:
    """The scenarios' option."""
    parser.addoption("--cluster", choices=["embedded"], default="embedded", help="what the scenarios run on")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """A real embedded cluster over a fresh file, its background tasks running, without validators."""
    async with embedded_cluster(tmp_path / "cluster.db") as running:
        yield running
