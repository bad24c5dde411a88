"""The Go command: the one program of this machine that builds, and that asks the network (for modules)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.testbed import commands, paths
from tests.testbed.errors import MachineLacks

ENVIRONMENT: Final = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}  # static; no git questions about our checkout
_LONGEST: Final = 1800.0  # s for one module, cold, on a busy machine


def check() -> None:
    """Raise MachineLacks without Go."""
    if commands.find("go") is None:
        raise MachineLacks("this machine has no Go: install Go 1.25 or newer and put it on the PATH")


def run(*arguments: str | Path, cwd: Path | None = None) -> str:
    """Stdout of `go ARGUMENTS`, which yields to everything else that runs. Raises MachineLacks, TestbedError."""
    check()
    return commands.run("nice", "go", *arguments, cwd=cwd, env=environment(os.environ), timeout=_LONGEST)


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """`own` with its proxies, since modules come from elsewhere; without HOME Go would find none of its caches."""
    return {**own, **ENVIRONMENT, "HOME": str(paths.home(own))}
