"""Files of other projects' releases, as the Go module cache has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.testbed import golang
from tests.testbed.errors import TestbedError


def module_folder(module: str) -> Path:
    """Where `PATH@VERSION` lies; without it the test is skipped and says how to get it. No network is asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOPROXY", "off")
        try:
            said = json.loads(golang.run("mod", "download", "-json", module))
        except TestbedError as error:
            pytest.skip(f"run `go mod download {module}` once: {error}")
    return Path(said["Dir"])
