"""Go builds of everything that the testbed runs, cached by what goes into them."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.testbed import commands
from tests.testbed.errors import MachineLacks
from tests.testbed.locks import alone
from tests.testbed.paths import Paths
from tests.testbed.progress import Progress
from tests.testbed.versions import Module

_LONGEST: Final = 1800.0  # s for one module, cold, on a busy machine
_ENVIRONMENT: Final = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}  # static; no git questions about our checkout
_KEY_LENGTH: Final = 16  # hexadecimal digits


def ensure(modules: Iterable[Module], paths: Paths, progress: Progress) -> bool:
    """Build what is not in the cache, and link every binary into one folder; whether something was built.

    Raises MachineLacks without Go, TestbedError with the compiler's words when a build fails.
    """
    before = set(paths.builds.glob("*"))
    for module in modules:
        built = paths.builds / f"{module.name}-{key(module)}"
        if not built.exists():
            with alone(paths.locks / built.name, progress):
                if not built.exists():
                    _build(module, built, progress)
        for name in module.binaries:
            _link(paths.binaries / name, built / name)
    return not before.issuperset(paths.builds.glob("*"))


def key(module: Module) -> str:
    """What goes into the binaries, as one word: sources, flags and the compiler."""
    digest = hashlib.sha256()
    for path in sorted(module.folder.glob("*")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for name, package in module.binaries.items():
        digest.update(f"{name}={package}\0".encode())
    digest.update(f"{module.link_flags}\0{_ENVIRONMENT}\0{_compiler()}".encode())
    return digest.hexdigest()[:_KEY_LENGTH]


def source(module: Module, name: str = "") -> Path:
    """The folder of module `name` (the pinned one without) in the module cache, which is filled when needed."""
    _compiler()
    commands.run("go", "mod", "download", name or module.main, cwd=module.folder, env=_environment(), timeout=_LONGEST)
    found = commands.run("go", "list", "-m", "-f", "{{.Dir}}", name or module.main, cwd=module.folder)
    return Path(found.strip())


def _build(module: Module, built: Path, progress: Progress) -> None:
    progress(f"build {module.name} {module.version}".rstrip())
    making = built.with_name(f".{built.name}.new")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    flags = ("-trimpath", "-ldflags", module.link_flags)
    packages = list(module.binaries.values())
    target = f"{making}/" if packages != ["."] else making / next(iter(module.binaries))
    commands.run(
        "nice", "go", "build", *flags, "-o", target, *packages,
        cwd=module.folder, env=_environment(), timeout=_LONGEST,
    )  # fmt: skip
    for name, package in module.binaries.items():
        made = making / package.rpartition("/")[2]
        if package != "." and made.name != name:
            made.rename(making / name)
    making.rename(built)
    progress(f"build {module.name}: done")


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f".{link.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)


def _environment() -> dict[str, str]:
    return dict(os.environ) | _ENVIRONMENT  # with the proxies: modules come from elsewhere


@functools.cache
def _compiler() -> str:
    if shutil.which("go") is None:
        raise MachineLacks("this machine has no Go: install Go 1.25 or newer and put it on the PATH")
    return commands.run("go", "env", "GOVERSION", "GOARCH", "GOOS", env=_environment()).strip()
