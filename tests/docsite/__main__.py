"""Build the site of the documentation: `make docs`, or `make docs-serve` while you write.

`python -m tests.docsite build` writes `build/site`. It fails on a warning of Zensical, a dead link or anchor, and a
page that loads something from another host. It needs the extra `docs` and no network. Without the package merman, which
has no wheel for Linux on Arm, pictures stay text.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.docsite.check import find_faults
from tests.docsite.pictures import can_render
from tests.docsite.prepare import CONFIGURATION, SITE, prepare
from tests.docsite.sources import ROOT, find_sources

POLL = 1.0  # s between two looks at the pages while the site is served


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.docsite", description=__doc__)
    parser.add_argument("action", choices=["build", "serve"], help="write the site, or serve it")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", help="folder for the site and its sources")
    given = parser.parse_args()
    if not can_render():
        print(
            "pictures stay text: the package merman is not installed; it has no wheel for Linux on Arm", file=sys.stderr
        )
    prepare(given.folder)
    return build(given.folder) if given.action == "build" else serve(given.folder)


def build(folder: Path) -> int:
    """Build the site and check it; return the exit code."""
    with zensical(folder, "build", "--clean", "--strict") as process:
        if process.wait():
            return process.returncode
    faults = find_faults(folder / SITE)
    print("\n".join(faults) or f"the site is {folder / SITE / 'index.html'}")
    return 1 if faults else 0


def serve(folder: Path) -> int:
    """Serve the site until Ctrl-C; a saved page is shown after some seconds."""
    with zensical(folder, "serve") as process:
        seen = newest_change()
        while process.poll() is None:
            time.sleep(POLL)
            if (now := newest_change()) != seen:
                seen = now
                prepare(folder)
        return process.returncode


def zensical(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start Zensical with the configuration in the folder."""
    program = str(Path(sys.executable).with_name("zensical"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # the configuration names a function of this package
    return subprocess.Popen([program, *arguments, "--config-file", CONFIGURATION], cwd=folder, env=environment)


def newest_change() -> float:
    """Return the time of the newest change of a page, in seconds."""
    return max((ROOT / source).stat().st_mtime for source in find_sources().pages)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
