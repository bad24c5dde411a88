"""Fixtures of the kubelet's tests."""

from __future__ import annotations

from tests.clusters.kubelet.fixtures import nodes

__all__ = ["nodes"]
