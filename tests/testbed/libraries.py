"""The shared libraries that programs of this machine need, to take them into an image without a distribution."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from pathlib import Path

from tests.testbed import commands
from tests.testbed.errors import TestbedError
from tests.testbed.trees import Entry, stored

LOADED_BY_NAME = ("libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2")
"""What the C library loads only when needed, so that ldd does not show it: to end threads and to resolve names."""
C_LIBRARY = "libc.so.6"
ELF_MAGIC = b"\x7fELF"
_FOUND = re.compile(r"^\s+(?P<name>\S+) => (?P<path>/\S+) \(0x")
_LOADER = re.compile(r"^\s+(?P<path>/\S+) \(0x")
_MISSING = re.compile(r"^\s+(?P<name>\S+) => not found")


def is_binary(path: Path) -> bool:
    """Whether the file is a program or a library."""
    with path.open("rb") as file:
        return file.read(len(ELF_MAGIC)) == ELF_MAGIC


def needed(binaries: Iterable[Path], own: Iterable[Path] = ()) -> dict[str, Entry]:
    """The libraries that these files load, by path in an image: all beside the C library, where its loader looks first.

    The loader itself keeps its path, which is written in every program. `own` are folders whose libraries are in the
    image anyway and found there by the files themselves. Raises TestbedError for a library that is not on this machine.
    """
    files = sorted(str(path) for path in binaries)
    if not files:
        return {}
    folders = [folder.resolve() for folder in own]
    brought = {path.name for folder in folders for path in folder.rglob("*.so*")}
    libraries, loaders = parse(commands.run("ldd", *files), brought)
    if C_LIBRARY not in libraries:
        raise TestbedError(f"{files[0]} and {len(files) - 1} more load no {C_LIBRARY}: images need glibc's Python")
    beside = libraries[C_LIBRARY].parent
    kept = {name: path for name, path in libraries.items() if not _within(path, folders)}
    kept |= {name: beside / name for name in LOADED_BY_NAME if name not in kept and (beside / name).exists()}
    placed = {_in_image(beside / name): stored(path.resolve()) for name, path in kept.items()}
    return placed | {_in_image(path): stored(path.resolve()) for path in loaders}


def parse(text: str, brought: Container[str] = ()) -> tuple[dict[str, Path], set[Path]]:
    """What ldd says: name of each library to its path, and the loaders. Raises TestbedError for one not found.

    Names in `brought` are those of libraries in wheels, which are found through the library that asks for them: SciPy's
    Fortran library has no path of its own to the one that it needs.
    """
    libraries: dict[str, Path] = {}
    loaders: set[Path] = set()
    for line in text.splitlines():
        missing = _MISSING.match(line)
        if missing and missing["name"] not in brought:
            raise TestbedError(f"{missing['name']} is not on this machine: install the package that holds it")
        if found := _FOUND.match(line):
            libraries[found["name"]] = Path(found["path"])
        elif loader := _LOADER.match(line):
            loaders.add(Path(loader["path"]))
    return libraries, loaders


def _within(path: Path, folders: Iterable[Path]) -> bool:
    resolved = path.resolve()
    return any(resolved.is_relative_to(folder) for folder in folders)


def _in_image(path: Path) -> str:
    return str(path).removeprefix("/")
