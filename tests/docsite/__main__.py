"""Build the site of the documentation: `make docs`, or `make docs-serve` while you write.

`python -m tests.docsite build` writes `build/site`. It fails on a warning of Zensical, a dead link or anchor, and a
page that loads something from another host. It needs the extra `docs` and no network.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.docsite.check import find_faults
from tests.docsite.prepare import CONFIGURATION, SITE, prepare
from tests.docsite.sources import ROOT


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.docsite", description=__doc__)
    parser.add_argument("action", choices=["build", "serve"], help="write the site, or serve it")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", help="folder for the site and its sources")
    given = parser.parse_args()
    prepare(given.folder)
    zensical = [str(Path(sys.executable).with_name("zensical")), given.action, "--config-file", CONFIGURATION]
    if given.action == "build":
        zensical += ["--clean", "--strict"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # the configuration names a function of this package
    done = subprocess.run(zensical, cwd=given.folder, env=environment, check=False)
    if done.returncode or given.action == "serve":
        return done.returncode
    faults = find_faults(given.folder / SITE)
    print("\n".join(faults) or f"the site is {given.folder / SITE / 'index.html'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
