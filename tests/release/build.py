"""Build the sdist and the wheel twice, from two folders, and compare them byte by byte.

https://reproducible-builds.org/docs/source-date-epoch/: every time in the archives is that of the last commit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.release.contents import check_metadata, check_relative_links, check_sdist, check_wheel
from tests.release.errors import ReleaseError

ROOT: Final = Path(__file__).parents[2]
UV: Final = ROOT / ".venv-uv" / "bin" / "uv"
FOLDERS: Final = ("first", "a-second-folder")
"""Names of different lengths, so that a path inside an archive would show."""
EPOCH: Final = "SOURCE_DATE_EPOCH"

Run = Callable[[Sequence[str | Path], Path, Mapping[str, str]], str]
"""Run a command in a folder with environment variables; return its output. Raises ReleaseError."""


def run(command: Sequence[str | Path], folder: Path, variables: Mapping[str, str]) -> str:
    """Run a command and return its stdout. Raises ReleaseError with its output if it fails."""
    environment = {**os.environ, **variables}
    done = subprocess.run([*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr + done.stdout).strip()
        raise ReleaseError(f"{' '.join(map(str, command[:3]))} … failed with exit code {done.returncode}: {said}")
    return done.stdout


def project_version(root: Path = ROOT) -> str:
    """Return the version that pyproject.toml declares."""
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def tracked_files(root: Path = ROOT) -> list[str]:
    """Return the paths of all files that git tracks. Raises ReleaseError outside a clone."""
    listed = run(["git", "ls-files", "-z"], root, {}).split("\0")
    return sorted(name for name in listed if name and (root / name).is_file())


def commit_time(root: Path = ROOT) -> str:
    """Return SOURCE_DATE_EPOCH of the environment, else the time of the last commit in seconds since 1970."""
    return os.environ.get(EPOCH) or run(["git", "log", "-1", "--format=%ct"], root, {}).strip()


def build_twice(out: Path, root: Path = ROOT) -> list[Path]:
    """Write the sdist and the wheel into `out`, and return them. Raises ReleaseError unless both builds are equal."""
    names, epoch = tracked_files(root), commit_time(root)
    with tempfile.TemporaryDirectory(prefix="knodel-dist-") as made:
        built = [_build(root, Path(made, folder), names, epoch) for folder in FOLDERS]
        digests = [{path.name: digest(path) for path in files} for files in built]
        if differing := sorted(name for name in digests[0] if digests[0][name] != digests[1].get(name)):
            raise ReleaseError(f"two builds of {', '.join(differing)} differ: compare them with diffoscope")
        out.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy2(path, out / path.name)) for path in built[0]]


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def problems(distributions: Sequence[Path], root: Path = ROOT) -> list[str]:
    """Return the problems of the contents and the metadata of an sdist and a wheel."""
    version, names, found = project_version(root), tracked_files(root), []
    for path in distributions:
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as archive:
                found += check_wheel(archive.namelist(), names)
                text = archive.read(f"knodel-{version}.dist-info/METADATA")
        else:
            with tarfile.open(path) as archive_:
                members = {one.name.partition("/")[2]: one for one in archive_.getmembers() if one.isfile()}
                found += check_sdist(members, names)
                file = archive_.extractfile(members["PKG-INFO"])
                text = file.read() if file else b""
        found += [f"{path.name}: {one}" for one in check_metadata(text, version)]
        found += [f"{path.name}: {one}" for one in check_relative_links(text.decode())]
    return found


def _build(root: Path, folder: Path, names: Sequence[str], epoch: str) -> list[Path]:
    """Copy the tracked files into `folder`; build the sdist there, and the wheel from the sdist."""
    source, out = folder / "source", folder / "out"
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, source / name)
    constraints = ("--build-constraints", root / "requirements" / "build.txt")
    run([UV, "build", "--quiet", *constraints, "--out-dir", out, source], folder, {EPOCH: epoch})
    made = sorted(path for path in out.iterdir() if path.name.startswith("knodel-"))
    if [path.suffix for path in made] != [".whl", ".gz"]:
        raise ReleaseError(f"the build made {', '.join(path.name for path in made) or 'nothing'}: one wheel, one sdist")
    return made
