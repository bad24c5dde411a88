"""A disk of a few MiB that a test fills, for one thread and the processes that it starts; nobody else sees it.

Or, for who is not root, one file that does not grow.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from tests.support.mounts import in_mount_namespace

T = TypeVar("T")

BALLAST: Final = "ballast"
CHUNK: Final = 4096


def on_small_disk(folder: Path, mebibytes: int, work: Callable[[], T]) -> T:
    """What `work` returns, called in a thread that has an empty disk of this size at `folder`, gone afterwards.

    Raises MayNotMount.
    """

    def mounted() -> T:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0700", "tmpfs", str(folder)], check=True)
        return work()

    return in_mount_namespace(mounted)


def fill(folder: Path, leave: int = 0) -> None:
    """Take all the room that the disk has left, but so many bytes."""
    with (folder / BALLAST).open("ab", buffering=0) as ballast:
        with contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(CHUNK))
        ballast.truncate(max(0, ballast.tell() - leave))


def make_room(folder: Path) -> None:
    """Give back what `fill` took."""
    (folder / BALLAST).unlink()


@contextlib.contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """No file of this process grows beyond the size that the write-ahead log of this store has now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(f"{path}-wal").stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
