"""Type every console block of the README and of the tour (`docs/tour.md`) literally, in order, into one shell.

The user has an empty home folder, a fresh copy of the project, and a folder for state and one for temporary files whose
paths have 150 characters. Blocks under the heading of Kubernetes run in `tests/cluster/test_readme.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.guide import Session, sessions
from tests.support.own_home import REAL_HOME
from tests.support.shell import Shell

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs" / "tour.md")
"""The pages that a new user follows, in order."""
KUBERNETES = "On Kubernetes"
ALL = [session for page in PAGES for session in sessions(page.read_text(encoding="utf-8"))]
SESSIONS = [session for session in ALL if session.heading != KUBERNETES]
LENGTH = 150
"""Characters of a path that is longer than the address of a Unix socket may be (108)."""
OF_THE_MACHINE = ("PATH", "LANG", "PIP_", "UV_", "SSL_", "HTTP_", "HTTPS_", "NO_PROXY", "http_", "https_", "no_proxy")
"""How the names of variables begin that do not belong to the user: how to reach a package index, for example."""
WITHIN = 300.0
"""s for one command; the first one installs everything."""

pytestmark = pytest.mark.timeout(1500)


def long_folder(base: Path, name: str) -> Path:
    """Make a folder whose path has `LENGTH` characters."""
    folder = base / name
    while (missing := LENGTH - len(str(folder)) - 1) > 0:
        folder /= "x" * min(missing, 50)
    folder.mkdir(parents=True)
    return folder


def copy_of_project(folder: Path) -> Path:
    """Copy what git knows of the project, and what is not committed yet, as `git clone` would once it is."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listing, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The new user's shell, in a copy of the project; the platform is down at the end."""
    base = tmp_path_factory.mktemp("user")
    home = base / "home"
    home.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if name.startswith(OF_THE_MACHINE)},
        "HOME": str(home),
        "TMPDIR": str(long_folder(base, "tmp")),
        "XDG_STATE_HOME": str(long_folder(base, "state")),
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path(os.environ[REAL_HOME]) / ".cache" / "uv")),
    }
    place = copy_of_project(base / "knodel")
    with Shell(place, environment) as made:
        yield made
        made.run("make stop", WITHIN)


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.heading)
def test_every_command_of_the_readme_works_as_it_stands_there(shell: Shell, session: Session) -> None:
    for step in session.steps:
        printed = shell.run(step.command, WITHIN)
        assert not step.expected.strip() or step.agrees(printed), f"{step.command}\n{printed}"


def test_a_second_make_run_works_beside_the_first_one(shell: Shell) -> None:
    for _ in range(2):
        assert "magika classifies quickstart.py as python" in shell.run("make run", WITHIN)
