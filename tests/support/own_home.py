"""Give the tests a home folder and a folder for temporary files of their own, and find what they leave elsewhere.

Libraries write into the home folder when they are imported (`~/.keras`, `~/.kube/cache`, `~/.rustup`), and read from
it. The tests must neither depend on what is there nor leave anything behind.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

REAL_HOME = "TESTS_REAL_HOME"  # the platform refuses a variable with its own prefix that it does not know
"""The variable with the user's own home folder. Caches of builds stay there (`tests.testbed.paths.home`)."""
KEPT = frozenset({".cache", ".local"})
"""Folders of the user's home that builds of the tests are meant to write to: `.cache/knodel`, the testbed's state."""
FOREIGN = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "KERAS_HOME", "MPLCONFIGDIR")
"""Variables by which a library would find a folder of the user's in spite of the new home."""


def enter() -> None:
    """Set HOME and TMPDIR to new, empty folders for this process and all that it starts. A second call changes nothing.

    The folders are removed when the process ends that made them. The folders of `tmp_path` stay where pytest puts them.
    """
    if REAL_HOME in os.environ:  # a worker of pytest-xdist, or a pytest that a test started
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="knodel-tests-"))
    atexit.register(_remove, folder, os.getpid())
    os.environ[REAL_HOME] = os.environ.get("HOME") or str(Path.home())
    for variable, name in (("HOME", "home"), ("TMPDIR", "tmp")):
        (folder / name).mkdir()
        os.environ[variable] = str(folder / name)
    tempfile.tempdir = None  # read TMPDIR again
    for name in (*FOREIGN, *(name for name in os.environ if name.startswith("KNODEL_") and name != REAL_HOME)):
        os.environ.pop(name, None)


def entries() -> frozenset[str]:
    """Return the names of what lies in the user's own home folder, without the folders of caches and state."""
    return frozenset(path.name for path in Path(os.environ[REAL_HOME]).iterdir()) - KEPT


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # not in a fork of it
        shutil.rmtree(folder, ignore_errors=True)
