"""Install a wheel into empty environments of several Pythons, and use it there, outside of the checkout."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.release.build import ROOT, UV, run
from tests.release.errors import ReleaseError

PYTHONS: Final = ("3.11", "3.12", "3.13")
"""Versions of Python that a release supports. The classifiers of pyproject.toml list the same."""
CONSTRAINTS: Final = ROOT / "requirements" / "constraints.txt"
EXTRAS: Final = "[platform,sklearn]"
IMPORTS: Final = "import knodel; print(len([getattr(knodel, name) for name in knodel.__all__]))"
TRAIN: Final = """\
import skops.io
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
data = load_iris()
skops.io.dump(LogisticRegression(max_iter=500).fit(data.data, data.target), "iris.skops")
"""
ASK: Final = """\
import sys
import knodel
client = knodel.Client(state=sys.argv[1])
answer = client.predict("iris", [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]])
print([int(one) for one in answer.to_numpy()])
"""
CLASSES: Final = "[0, 2]"
"""Setosa and virginica, for the two flowers of `ASK`."""
LINES: Final = 20
"""Lines of a log in a message."""
PORTS: Final = 3
"""Ports of a platform that follow each other: gateway, events, control API."""


def find_python(version: str) -> Path | None:
    """Return an interpreter of `version` ("3.12"): of pyenv, else of the PATH, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    there = sorted(pyenv.glob(f"{version}.*/bin/python"))
    on_path = shutil.which(f"python{version}")
    return next((one for one in (*there, *([Path(on_path)] if on_path else [])) if _is_version(one, version)), None)


def _is_version(python: Path, version: str) -> bool:
    """Return whether it runs and has the version: a shim of pyenv may be on the PATH without its interpreter."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        said = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return False
    return said.returncode == 0 and said.stdout.strip() == version


def check_base(wheel: Path, python: Path, folder: Path) -> Iterator[str]:
    """Install the wheel alone; yield a line for each step. Raises ReleaseError."""
    programs, variables = install(wheel, python, folder / "base", ""), environment(folder)
    yield f"installed {wheel.name}"
    _expect("Serve models", run([programs / "knodel", "--help"], folder, variables))
    version = wheel.name.split("-")[1]
    _expect(version, run([programs / "knodel", "--version"], folder, variables))
    _expect(version, run([programs / "knodel", "version", "--client"], folder, variables))
    yield "knodel --help, --version and version --client"
    names = run([programs / "python", "-c", IMPORTS], folder, variables).strip()
    yield f"imported {names} public names"


def check_platform(wheel: Path, python: Path, folder: Path) -> Iterator[str]:
    """Install the wheel with a platform and an engine; deploy a model, ask it. Raises ReleaseError."""
    programs, variables = install(wheel, python, folder / "platform", EXTRAS), environment(folder)
    yield f"installed {wheel.name}{EXTRAS}"
    knodel, state = programs / "knodel", folder / "state"
    run([programs / "python", "-c", TRAIN], folder, variables)
    try:
        run([knodel, "up", "--detach", "--port", str(free_ports(PORTS)), "--state", state], folder, variables)
        yield "the platform is up"
        run([knodel, "deploy", "iris", "--uri", folder / "iris.skops", "--state", state], folder, variables)
        yield "the model is deployed"
        _expect(CLASSES, run([programs / "python", "-c", ASK, state], folder, variables))
        yield f"the model answers {CLASSES}"
    except ReleaseError as error:
        raise ReleaseError(f"{error}; its log ends with: {_end_of(state / 'platform.log')}") from error
    finally:
        run([knodel, "down", "--state", state], folder, variables)
    yield "the platform is down"


def install(wheel: Path, python: Path, folder: Path, extras: str) -> Path:
    """Install the wheel with extras into a new environment; return its folder of programs. Raises ReleaseError."""
    variables = environment(folder.parent)
    folder.parent.mkdir(parents=True, exist_ok=True)
    run([UV, "venv", "--quiet", "--python", python, folder], folder.parent, variables)
    target = ("--python", folder / "bin" / "python")
    wanted = f"knodel{extras} @ {wheel.resolve().as_uri()}"
    run([UV, "pip", "install", "--quiet", *target, "--constraint", CONSTRAINTS, wanted], folder.parent, variables)
    run([UV, "pip", "check", "--quiet", *target], folder.parent, variables)
    return folder / "bin"


def environment(folder: Path) -> Mapping[str, str]:
    """Return variables that keep our settings and the checkout out: empty ones count as absent."""
    ours = {name: "" for name in os.environ if name.startswith(("KNODEL_", "PYTHON"))}
    return {**ours, "KNODEL_STATE": str(folder / "state")}


def free_ports(count: int) -> int:
    """Return the first of `count` free ports that follow each other. Raises ReleaseError."""
    for first in range(18080, 28080, 10):
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise ReleaseError(f"no {count} free ports follow each other between 18080 and 28080")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


def missing(found: Mapping[str, Path | None]) -> Iterable[str]:
    """Return the versions without an interpreter."""
    return [version for version, python in found.items() if python is None]


def _end_of(log: Path) -> str:
    """Return the last lines of a log, since its folder is deleted with the environment."""
    return " | ".join(log.read_text(errors="replace").splitlines()[-LINES:]) if log.exists() else "nothing"


def _expect(wanted: str, said: str) -> None:
    if wanted not in said:
        raise ReleaseError(f"{wanted!r} is not in the output: {said.strip()!r}")
