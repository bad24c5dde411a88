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
    """Which cluster the scenarios, the contract and `tests/cluster` run on."""
    choices = ["embedded", "kubernetes"]
    parser.addoption("--cluster", choices=choices, default="embedded", help="what the scenarios run on")
    parser.addoption("--kubeconfig", default="", help="of `--cluster kubernetes`; default KUBECONFIG, the testbed's")
    parser.addoption("--kube-context", default="", help="of `--cluster kubernetes`; default the current one")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """A real embedded cluster over a fresh file, its background tasks running, without validators."""
    async with embedded_cluster(tmp_path / "cluster.db") as running:
        yield running
