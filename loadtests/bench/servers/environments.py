"""Virtual environments of the peers, each created once: their requirements conflict with ours and with each other."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

STAMP = "installed.txt"  # the requirements, written last; without it an environment is incomplete


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer at one version. `same` are packages at our versions, `more` its other packages.

    Engines have the same versions if possible, so that the benchmark compares the servers around them.
    """

    name: str
    version: str
    same: Sequence[str]
    more: Sequence[str] = ()

    def python(self) -> Path:
        """Return the interpreter of the environment, and create it if it is missing. Raises SystemExit."""
        folder = cache(os.environ) / f"{self.name}-{self.version}"
        wanted = "\n".join((f"python {sys.version}", *self._all()))
        stamp = folder / STAMP
        if not stamp.exists() or stamp.read_text() != wanted:
            print(f"creating an environment for {self.name} {self.version} in {folder}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            _make(folder, self._all())
            stamp.write_text(wanted)
        return folder / "bin" / "python"

    def _all(self) -> list[str]:
        same = [f"{package}=={importlib.metadata.version(package)}" for package in self.same]
        return [f"{self.name}=={self.version}", *same, *self.more]


def cache(environ: Mapping[str, str]) -> Path:
    """Folder of all environments."""
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "knodel" / "peers"


def _make(folder: Path, requirements: Sequence[str]) -> None:
    uv = _uv()
    python = folder / "bin" / "python"
    if uv is None:
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
    else:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        _run([uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), *requirements])


def _uv() -> str | None:
    """Return uv, from the Makefile's environment or the machine."""
    made = Path(f"{sys.prefix}-uv") / "bin" / "uv"
    return str(made) if made.exists() else shutil.which("uv")


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"cannot create an environment for a peer: {done.stderr.strip()[-2000:]}")
