"""Images in the testbed's containerd: OCI archives imported once each."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.testbed import commands
from tests.testbed.paths import Paths

CTR: Final = "/usr/bin/ctr"
NAMESPACE: Final = "k8s.io"  # the one whose images the kubelet sees
_AT_A_TIME: Final = 2  # unpacking is reading and writing on both cores of a small machine
_LONGEST: Final = 300.0  # s for one archive


def import_archives(paths: Paths, archives: Iterable[Path]) -> list[Path]:
    """Import the archives that are not in containerd yet, and say which; an archive's name tells its content."""
    missing = [archive for archive in archives if not _mark(paths, archive).exists()]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        list(pool.map(lambda archive: _import(paths, archive), missing))
    return missing


def _import(paths: Paths, archive: Path) -> None:
    address = f"--address={paths.containerd_socket}"
    commands.run(CTR, address, f"--namespace={NAMESPACE}", "images", "import", archive, timeout=_LONGEST)
    mark = _mark(paths, archive)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def _mark(paths: Paths, archive: Path) -> Path:
    return paths.containerd / "imported" / archive.name  # beside the images: both go together
