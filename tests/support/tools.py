"""Programs that tests run, built by `python -m tests.testbed tools` or installed on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.testbed import paths


def tool(name: str) -> Path:
    """Return the path of a program; skip the test if it is not on this machine."""
    built = paths.standard().binaries / name
    found = str(built) if built.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on this machine: `python -m tests.testbed tools` builds it")
    return Path(found)
