"""Environments of the peers: their requirements and ours exclude each other, so each has one of its own, made once."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

STAMP = "installed.txt"  # the requirements, written last: without it an environment is half made


@dataclass(frozen=True, slots=True)
class Peer:
    """A server of others at one version; `same`: packages at the versions that we have, `more`: what it needs besides.

    Engines are the same where they can be: what is compared is what stands around them.
    """

    name: str
    version: str
    same: Sequence[str]
    more: Sequence[str] = ()

    def python(self) -> Path:
        """The interpreter of its environment, which is made when it is not there. Raises SystemExit."""
        folder = cache(os.environ) / f"{self.name}-{self.version}"
        wanted = "\n".join((f"python {sys.version}", *self._all()))
        stamp = folder / STAMP
        if not stamp.exists() or stamp.read_text() != wanted:
            print(f"making an environment for {self.name} {self.version} in {folder}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            _make(folder, self._all())
            stamp.write_text(wanted)
        return folder / "bin" / "python"

    def _all(self) -> list[str]:
        same = [f"{package}=={importlib.metadata.version(package)}" for package in self.same]
        return [f"{self.name}=={self.version}", *same, *self.more]


def cache(environ: Mapping[str, str]) -> Path:
    """Where all of them are."""
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
    """The Makefile's, or the machine's."""
    made = Path(f"{sys.prefix}-uv") / "bin" / "uv"
    return str(made) if made.exists() else shutil.which("uv")


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"an environment for a peer cannot be made: {done.stderr.strip()[-2000:]}")
