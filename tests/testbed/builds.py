"""Go builds of everything that the testbed runs, cached by what goes into them."""

from __future__ import annotations

import functools
import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.testbed import golang
from tests.testbed.locks import alone
from tests.testbed.paths import Paths
from tests.testbed.progress import Report
from tests.testbed.versions import Module

_KEY_LENGTH: Final = 16  # hexadecimal digits
_TEST_TAG: Final = "e2e"  # Knative's, of all its tests that need a cluster


def ensure(modules: Iterable[Module], paths: Paths, report: Report) -> bool:
    """Build what is not in the cache, and link every binary into one folder; whether something was built.

    Raises MachineLacks without Go, TestbedError with the compiler's words when a build fails.
    """
    before = set(paths.builds.glob("*"))
    for module in modules:
        built = paths.builds / f"{module.name}-{key(module)}"
        if not built.exists():
            with alone(paths.locks / built.name, report):
                if not built.exists():
                    _build(module, built, report)
        for name in (*module.binaries, *module.tests):
            _link(paths.binaries / name, built / name)
    return not before.issuperset(paths.builds.glob("*"))


def key(module: Module) -> str:
    """What goes into the binaries, as one word: sources, flags and the compiler."""
    digest = hashlib.sha256()
    for path in sorted(module.folder.glob("*")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for name, package in module.binaries.items():
        digest.update(f"{name}={package}\0".encode())
    for name, package in module.tests.items():
        digest.update(f"test {name}={package}\0".encode())
    digest.update(f"{module.link_flags}\0{golang.ENVIRONMENT}\0{_compiler()}".encode())
    return digest.hexdigest()[:_KEY_LENGTH]


def _build(module: Module, built: Path, report: Report) -> None:
    report(f"build {module.name} {module.version}".rstrip())
    making = built.with_name(f".{built.name}.new")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    flags = ("-trimpath", "-ldflags", module.link_flags)
    packages = list(module.binaries.values())
    target = f"{making}/" if packages != ["."] else making / next(iter(module.binaries))
    golang.run("build", *flags, "-o", target, *packages, cwd=module.folder)
    for name, package in module.binaries.items():
        made = making / package.rpartition("/")[2]
        if package != "." and made.name != name:
            made.rename(making / name)
    for name, package in module.tests.items():
        golang.run("test", "-c", f"-tags={_TEST_TAG}", *flags, "-o", making / name, package, cwd=module.folder)
    making.rename(built)
    _remove_others(module, built)
    report(f"build {module.name}: done")


def _remove_others(module: Module, built: Path) -> None:
    """Former builds are some hundred MB each; a process that still runs one of them keeps its file open."""
    for former in built.parent.glob(f"{module.name}-*"):
        if former != built:
            shutil.rmtree(former, ignore_errors=True)


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f".{link.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)


@functools.cache
def _compiler() -> str:
    return golang.run("env", "GOVERSION", "GOARCH", "GOOS").strip()
