"""Build the archive of the kubectl plugin: a script, and the base of Knodel with its pure-Python dependencies."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import yaml

from tests.release.build import ROOT, UV, digest, run
from tests.release.environments import CONSTRAINTS
from tests.release.krew import PROGRAM, archive_name, make_krew_manifest

LIBRARIES: Final = "lib"
PYTHON: Final = "3.11"
"""The oldest Python; pure packages are the same for all newer ones."""
SCRIPT: Final = f"""\
#!/usr/bin/env python3
import sys
from pathlib import Path

if sys.version_info < (3, 11):
    sys.exit(f"kubectl knodel needs Python 3.11 or newer: python3 is {{sys.version.split()[0]}}")
sys.path.insert(0, str(Path(__file__).resolve().parent / "{LIBRARIES}"))

from serving.cli.main import plugin

sys.exit(plugin())
"""
OF_THE_MACHINE: Final = ("direct_url.json", "RECORD", "INSTALLER", "REQUESTED", "uv_cache.json", ".lock")
"""Files that tell where and how a package was installed."""


def build_plugin(wheel: Path, version: str, epoch: int, download: str, out: Path) -> list[Path]:
    """Write the archive and the manifest into `out`, and return them. Raises ReleaseError."""
    with tempfile.TemporaryDirectory(prefix="knodel-plugin-") as made:
        folder = Path(made)
        target = folder / LIBRARIES
        where = ("--target", target, "--python-version", PYTHON, "--constraint", CONSTRAINTS)
        run([UV, "pip", "install", "--quiet", *where, f"knodel @ {wheel.resolve().as_uri()}"], folder, {})
        shutil.rmtree(target / "bin", ignore_errors=True)
        (folder / PROGRAM).write_text(SCRIPT)
        shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
        archive = out / archive_name(version)
        archive.write_bytes(pack(folder, kept(folder), epoch))
    manifest = out / "knodel.krew.yaml"
    manifest.write_text(yaml.safe_dump(make_krew_manifest(version, download, digest(archive)), sort_keys=False))
    return [archive, manifest]


def kept(folder: Path) -> list[Path]:
    """Return the files of the archive: without compiled code, byte code, and records of the installation."""
    left_out = (".so", ".pyd", ".dylib", ".pyc")
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(left_out) and path.name not in OF_THE_MACHINE
    )


def pack(folder: Path, files: Iterable[Path], epoch: int) -> bytes:
    """Return a gzipped tar archive that depends only on names and contents of the files, and on the time `epoch`."""
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", mtime=epoch) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for path in files:
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            content = path.read_bytes()
            entry.size, entry.mtime = len(content), epoch
            entry.mode = 0o755 if path.name == PROGRAM else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()
