"""This distribution: its version, and the command that installs one of its extras."""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

try:
    VERSION = version("knodel")
except PackageNotFoundError:  # run from a checkout that was never installed
    VERSION = "0.0.0"


def install_command(requirement: str) -> str:
    """Return the command that installs a requirement into the environment of this process.

    pip and uv read the extras of `knodel` from the installed distribution, so no index has to have it.

    Example:
        >>> install_command("knodel[onnx]")
        "pip install 'knodel[onnx]'"
    """
    python = Path(sys.executable)
    checkouts = Path(f"{sys.prefix}-uv", "bin", "uv")  # the Makefile installs it there
    uv = shutil.which("uv") or (str(checkouts) if checkouts.exists() else "uv")
    quote = '"' if sys.platform == "win32" else "'"  # cmd.exe does not remove single quotes
    return command_for(f"{quote}{requirement}{quote}", python, find_spec("pip") is not None, shutil.which("pip"), uv)


def command_for(requirement: str, python: Path, has_pip: bool, pip_on_path: str | None, uv: str) -> str:
    """Return the command for the environment of `python`: its own pip if it has one, else uv. Pure."""
    install = f"pip install {requirement}"
    if not has_pip:
        return f"{uv} {install} --python {python}"
    return install if pip_on_path and Path(pip_on_path).parent == python.parent else f"{python} -m {install}"
