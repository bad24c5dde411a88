"""The doors of a platform on which nothing acts, for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doors.platform import Doors, open_doors


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Doors]:
    """Control API and webhook over an empty store."""
    folder = tmp_path / "state"
    folder.mkdir()
    async with open_doors(folder) as opened:
        yield opened
