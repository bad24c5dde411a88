"""A process's own wall clock, set while it runs: libfaketime, its monotonic clock left alone.

clock = WallClock(folder / "clock")
... start a process with `clock.environment` ...
clock.set("+30d")
"""

from __future__ import annotations

from pathlib import Path

import pytest

LIBRARY = "faketime/libfaketimeMT.so.1"
FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")


MISSING = "libfaketime is not installed: apt-get install libfaketime"


def library() -> Path | None:
    """Where libfaketime is installed; None where it is not."""
    return next((path for path in (Path(one) / LIBRARY for one in FOLDERS) if path.exists()), None)


class WallClock:
    """Offset of the wall clock of every process that has `environment`; read anew with each look at the clock."""

    def __init__(self, file: Path) -> None:
        """Skips the test where the library is not installed."""
        self._library = library()
        if self._library is None:
            pytest.skip(MISSING)
        self._file = file
        self.set("+0")

    def set(self, offset: str) -> None:
        """As in `+1h`, `-30d`, against the machine's clock."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset}\n")
        fresh.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of such a process."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
