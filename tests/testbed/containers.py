"""Images in the testbed's containerd: OCI archives imported once each."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.testbed import commands, files
from tests.testbed.paths import Paths

CTR: Final = "/usr/bin/ctr"
NAMESPACE: Final = "k8s.io"  # the one whose images the kubelet sees
_AT_A_TIME: Final = 2  # unpacking is reading and writing on both cores of a small machine
_LONGEST: Final = 300.0  # s for one archive


def import_archives(paths: Paths, archives: Iterable[Path]) -> list[Path]:
    """Import the archives `NAME-CONTENT.tar` that are not the last imported ones of their name; which were."""
    missing = [archive for archive in archives if _last_imported(paths, archive) != archive.name]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        list(pool.map(lambda archive: _import(paths, archive), missing))
    return missing


def was_imported(paths: Paths, name: str) -> bool:
    """Whether an archive `NAME-CONTENT.tar` was imported."""
    return (paths.containerd / "imported" / name).exists()


def _import(paths: Paths, archive: Path) -> None:
    address = f"--address={paths.containerd_socket}"
    commands.run(CTR, address, f"--namespace={NAMESPACE}", "images", "import", archive, timeout=_LONGEST)
    files.write(_mark(paths, archive), archive.name)


def _last_imported(paths: Paths, archive: Path) -> str:
    mark = _mark(paths, archive)
    return mark.read_text() if mark.exists() else ""


def _mark(paths: Paths, archive: Path) -> Path:
    name, _, _ = archive.name.rpartition("-")
    return paths.containerd / "imported" / name  # beside the images: both go together
