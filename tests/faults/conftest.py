"""Fixtures of the fault tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    """Whether waits run in full length (`make test-faults-long`), not as shortened as the marker of the test states."""
    return bool(request.config.getoption("--full"))
