"""Scanners in environments of their own: what they need clashes with what Knodel needs, and with one another.

Each has its versions in `requirements/security/NAME.txt` and its environment in the user's cache, under a name that
follows from that file: new versions make a new environment, and the same ones are installed once for all checkouts.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.testbed import paths

ROOT = Path(__file__).parents[2]
PINS = ROOT / "requirements" / "security"
UV = ROOT / ".venv-uv" / "bin" / "uv"  # `make setup` puts it there

QUIET = {
    "SEMGREP_SEND_METRICS": "off",
    "SEMGREP_ENABLE_VERSION_CHECK": "0",
    "BC_SKIP_MAPPING": "TRUE",  # checkov would ask its makers' server for guidelines
    "CHECKOV_RUN_SCA_PACKAGE_SCAN": "false",
}
"""What keeps the scanners from asking anybody anything."""


def pins_of(tool: str) -> Path:
    """The file with a tool's versions."""
    return PINS / f"{tool}.txt"


def home_of(tool: str) -> Path:
    """A tool's environment, whether it is there or not; another one for other versions."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or paths.home() / ".cache")
    key = hashlib.sha256(pins_of(tool).read_bytes()).hexdigest()[:12]
    return cache / "knodel" / "security" / f"{tool}-{key}"


def prepare(tool: str) -> Path:
    """The tool's command, installed when it is not there yet.

    Raises CalledProcessError when its packages cannot be had.
    """
    home = home_of(tool)
    if not home.exists():
        made = home.with_name(f"{home.name}.{os.getpid()}")  # whole at once, and once for all who want it at a time
        subprocess.run([UV, "venv", "--quiet", "--relocatable", "--python", "python3", made], check=True)
        python = made / "bin" / "python"
        subprocess.run([UV, "pip", "install", "--quiet", "--python", python, "-r", pins_of(tool)], check=True)
        try:
            made.rename(home)
        except OSError:  # somebody was faster
            shutil.rmtree(made)
    return home / "bin" / tool


def run(tool: str, *arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end, without a network of its own wish; what it said is the caller's to judge."""
    command = prepare(tool)
    environment = os.environ | QUIET | {"PATH": f"{command.parent}:{os.environ['PATH']}"}
    return subprocess.run(
        [command, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
