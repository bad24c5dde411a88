"""Copy the output of Ray Serve's replicas to our own, without Ray's log monitor, which is a process of 50 MiB."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TextIO

PATTERNS: Final = ("worker-*.out", "worker-*.err")
MAX_READ: Final = 1 << 20  # bytes of a file at once; what is written faster is skipped
MAX_LINE: Final = 2000  # characters


class LogFollower:
    """Follows the files of Ray's workers in `folder`."""

    def __init__(self, folder: Path, output: TextIO) -> None:
        self._folder = folder
        self._output = output
        self._read: dict[Path, int] = {}

    def follow(self) -> None:
        """Copy the whole lines that were written since the last call."""
        for pattern in PATTERNS:
            for path in sorted(self._folder.glob(pattern)):
                self._follow(path)
        self._output.flush()

    def _follow(self, path: Path) -> None:
        try:
            size = path.stat().st_size
            begin = self._read.get(path, 0)
            begin = 0 if size < begin else max(begin, size - MAX_READ)  # the file was rotated, or grows fast
            if size == begin:
                return
            with path.open("rb") as file:
                file.seek(begin)
                data = file.read(size - begin)
        except OSError:
            return  # the file was rotated meanwhile
        whole = data[: data.rfind(b"\n") + 1]
        self._read[path] = begin + len(whole)
        for line in whole.decode("utf-8", "replace").splitlines():
            if line.strip() and not line.startswith((":job_id:", ":actor_name:", ":task_name:")):
                self._output.write(f"{line[:MAX_LINE]}\n")
