"""Fixtures of the tests in which another user of the machine attacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clusters.kubelet.fixtures import nodes
from tests.otherusers.users import Attacker, attacking, missing

__all__ = ["attacker", "nodes"]


@pytest.fixture(scope="session")
def attacker() -> Iterator[Attacker]:
    """A program of another user."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with attacking() as running:
        yield running
